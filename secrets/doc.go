// Package secrets owns the sealing of repository secrets and decides which run may have them.
//
// A value comes in from a person (Put), is sealed at once with AES-256-GCM under the key-encryption key, and is
// stored as sealed bytes through the one small interface Store. It goes out in one way only: as the set of a run
// whose trust allows it (Run). There is no call that reads one value back.
//
// What it refuses: names that are no shell identifiers, values too short to be masked in logs, a key file that
// others can read, and rows whose seal does not fit the place they were found in.
//
// Invariants:
//   - The key is in a file of its own, mode 0600, never in the database or its folder's backups.
//   - Each value has its own data key and nonces; the repository, owner epoch, name, version and key id are bound
//     into the seal, so that a row moved to another repository or another owner does not open.
//   - A new owner of a repository has none of the former owner's secrets.
//   - Values print as "[redacted]" wherever they are formatted, logged or marshalled.
package secrets
