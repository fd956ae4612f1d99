package pds

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// session is the body of createSession and its answer's core.
type session struct {
	Identifier string `json:"identifier"`
	Password   string `json:"password"`
}

// createSession takes the account's token as the password and gives it back as the access token: one
// secret for each account is enough on a network that lives in one process.
func (h *Host) createSession(w http.ResponseWriter, r *http.Request) {
	var in session
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		answer(w, nil, invalid("the body is no JSON object"))
		return
	}
	did, ok := h.Resolve(in.Identifier)
	if !ok || !h.holds(did, in.Password) {
		answer(w, nil, failure{http.StatusUnauthorized, "AuthenticationRequired", "Invalid identifier or password"})
		return
	}
	answer(w, map[string]any{
		"did": did.String(), "handle": h.handle(did), "accessJwt": in.Password, "refreshJwt": in.Password, "active": true,
	}, nil)
}

func (h *Host) getSession(w http.ResponseWriter, r *http.Request) {
	repo, err := h.bearer(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	answer(w, map[string]any{"did": repo.did.String(), "handle": h.handle(repo.did), "active": true}, nil)
}

// handle is the handle of did, or the word for none.
func (h *Host) handle(did syntax.DID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, d := range h.handles {
		if d == did {
			return name
		}
	}
	return syntax.HandleInvalid.String()
}

// bearer finds the repository whose token the request carries.
func (h *Host) bearer(r *http.Request) (*Repo, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok {
		if repo, found := h.owner(token); found {
			return repo, nil
		}
	}
	return nil, failure{http.StatusUnauthorized, "AuthenticationRequired", "a valid token is required"}
}

// writing is the body of createRecord, putRecord and deleteRecord.
type writing struct {
	Repo       string          `json:"repo"`
	Collection string          `json:"collection"`
	Rkey       string          `json:"rkey"`
	Record     json.RawMessage `json:"record"`
	SwapRecord string          `json:"swapRecord"`
}

// write serves com.atproto.repo.{createRecord,putRecord,deleteRecord}.
func (h *Host) write(w http.ResponseWriter, r *http.Request) {
	repo, err := h.bearer(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	var in writing
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		answer(w, nil, invalid("the body is no JSON object"))
		return
	}
	if did, ok := h.Resolve(in.Repo); !ok || did != repo.did {
		answer(w, nil, failure{http.StatusForbidden, "Forbidden", "the token is not the repository's"})
		return
	}
	var rec Record
	var c Commit
	switch method := r.URL.Path[strings.LastIndexByte(r.URL.Path, '.')+1:]; {
	case method == "deleteRecord":
		c, err = repo.Delete(in.Collection, in.Rkey)
	case method == "createRecord" && in.Rkey == "":
		rec, c, err = repo.Create(in.Collection, in.Record)
	default:
		rec, c, err = repo.Put(in.Collection, in.Rkey, in.Record, in.SwapRecord)
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	out := map[string]any{"commit": map[string]string{"cid": c.CID.String(), "rev": c.Rev}}
	if rec.Rkey != "" {
		out["uri"] = "at://" + repo.did.String() + "/" + rec.Collection + "/" + rec.Rkey
		out["cid"] = rec.CID.String()
	}
	answer(w, out, nil)
}
