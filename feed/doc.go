// Package feed hands out the numbered changes of pipelines, by cursor.
//
// It owns nothing that lasts: changes are rows that the store writes in the transaction that makes them, so a
// reader that keeps its number misses nothing across restarts of either side. Readers pull; nobody is pushed
// into or dropped, and a slow reader costs nothing but its own delay. A reader subscribes before it looks (Next
// takes the store's wake-up before it reads), so no change falls between the two.
//
// Many readers wait for the same change. The first one that wakes reads it from the store for all of them; a
// bounded tail of the newest changes keeps it for the others. Who asks for older ones reads the store.
package feed
