// Package feed hands out the numbered changes of pipelines, by cursor.
//
// It owns no state: changes are rows that the store writes in the transaction that makes them, so a reader
// that keeps its number misses nothing across restarts of either side. Readers pull; nobody is pushed into,
// and a slow reader costs nothing but its own delay. A reader subscribes before it looks (Next takes the
// store's wake-up before it reads), so no change falls between the two.
package feed
