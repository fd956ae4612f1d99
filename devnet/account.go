package devnet

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/url"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/devnet/pds"
	"spindle/devnet/plc"
)

// Account is a person with a DID and a record repository on a PDS.
type Account struct {
	DID    syntax.DID
	Handle string
	Token  string // password at the PDS and at the knot
	*pds.Repo

	net *Net
	pds *PDS
}

// CreateAccount makes an account on the first PDS with a new K-256 key.
func (n *Net) CreateAccount(ctx context.Context, handle string) (*Account, error) {
	h, err := syntax.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("create an account: %w", err)
	}
	key, err := atcrypto.GeneratePrivateKeyK256()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	host := n.PDS()
	did, err := n.register(key, h.Normalize().String(), plc.Service{ID: plc.PDSService, Type: plc.PDSType, Endpoint: host.Server.URL()})
	if err != nil {
		return nil, err
	}
	a := &Account{DID: did, Handle: h.Normalize().String(), Token: rand.Text(), net: n, pds: host}
	if a.Repo, err = host.Create(did, a.Handle, key, a.Token); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accounts[did] = a
	n.handles[a.Handle] = did
	return a, ctx.Err()
}

// register makes a DID whose documents name key and services.
func (n *Net) register(key atcrypto.PrivateKey, handle string, services ...plc.Service) (syntax.DID, error) {
	pub, err := key.PublicKey()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return n.directory.Create(plc.Entry{Handle: handle, Key: pub, Services: services})
}

// ServiceToken is a token of the account for the audience aud ("did:web:ci.test#tangled_spindle") and the
// method lxm, valid for 60 seconds.
func (a *Account) ServiceToken(aud, lxm string) (string, error) {
	return a.Repo.ServiceToken(aud, lxm, time.Minute)
}

// PDSURL is the origin of the PDS that the account is on.
func (a *Account) PDSURL() string { return a.host().Server.URL() }

func (a *Account) host() *PDS {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	return a.pds
}

// SetStatus makes the account inactive (takendown, suspended, deactivated, deleted), or active with the
// empty word.
func (a *Account) SetStatus(status string) error { return a.host().SetStatus(a.DID, status) }

// Rename gives the account another handle, in the directory and at its PDS. Who resolves handles by Net.Hosts
// must have asked for them after that.
func (a *Account) Rename(handle string) error {
	if err := a.host().Rename(a.DID, handle); err != nil {
		return err
	}
	if err := a.net.directory.SetHandle(a.DID, handle); err != nil {
		return err
	}
	a.net.mu.Lock()
	delete(a.net.handles, a.Handle)
	a.net.handles[handle] = a.DID
	a.Handle = handle
	a.net.mu.Unlock()
	sink{net: a.net}.Identity(a.DID.String(), handle)
	return nil
}

// RotateKey gives the account another key, a P-256 one, in the directory and in the record repository.
// With late, the directory still names the old key until the returned function is called.
func (a *Account) RotateKey(late bool) (publish func() error, err error) {
	return a.net.rotate(a.Repo, a.Handle, late)
}

func (n *Net) rotate(r *pds.Repo, handle string, late bool) (func() error, error) {
	key, err := atcrypto.GeneratePrivateKeyP256()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	pub, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if err := r.SetKey(key); err != nil {
		return nil, err
	}
	publish := func() error {
		if err := n.directory.SetKey(r.DID(), pub); err != nil {
			return err
		}
		sink{net: n}.Identity(r.DID().String(), handle)
		return nil
	}
	if late {
		return publish, nil
	}
	return publish, publish()
}

// Move takes the account to another PDS.
func (a *Account) Move(to *PDS) error {
	if err := to.Adopt(a.Repo, a.Handle, a.Token); err != nil {
		return err
	}
	err := a.net.directory.SetService(a.DID, plc.Service{ID: plc.PDSService, Type: plc.PDSType, Endpoint: to.Server.URL()})
	if err != nil {
		return err
	}
	a.net.mu.Lock()
	from := a.pds
	a.pds = to
	a.net.mu.Unlock()
	from.Drop(a.DID)
	sink{net: a.net}.Identity(a.DID.String(), a.Handle)
	return nil
}

// userinfo is the account's credential in a URL.
func (a *Account) userinfo() *url.Userinfo { return url.UserPassword(a.Handle, a.Token) }

// people tells the knots who somebody is.
type people struct{ net *Net }

func (p people) Resolve(name string) (syntax.DID, bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if did, ok := p.net.handles[name]; ok {
		return did, true
	}
	did := syntax.DID(name)
	return did, p.net.accounts[did] != nil
}

func (p people) Authenticate(user, token string) (syntax.DID, bool) {
	did, ok := p.Resolve(user)
	if !ok {
		return "", false
	}
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return did, subtle.ConstantTimeCompare([]byte(p.net.accounts[did].Token), []byte(token)) == 1
}
