package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"spindle/engines"
	"spindle/internal/netguard"
)

// Errors that callers may test for with errors.Is. Each comes inside an *engines.Error with a sentence for users.
var (
	// ErrReference refuses a name that is no reference.
	ErrReference = errors.New("images: not a reference")
	// ErrNotAllowed refuses a registry, or an address, that this server does not pull from.
	ErrNotAllowed = errors.New("images: the registry is not allowed")
	// ErrNotFound says that the registry has no such image. It is an engines.ErrUnknownImage.
	ErrNotFound = fmt.Errorf("images: not found: %w", engines.ErrUnknownImage)
	// ErrUnauthorised says that the registry does not let us have it.
	ErrUnauthorised = errors.New("images: unauthorised")
	// ErrRateLimited says that the registry wants us to come back later.
	ErrRateLimited = errors.New("images: rate limited")
	// ErrUnreachable says that there was no useful answer.
	ErrUnreachable = errors.New("images: the registry cannot be reached")
	// ErrPlatform says that the image is not for this machine.
	ErrPlatform = errors.New("images: wrong platform")
	// ErrUnsafe refuses an archive that tries what no image needs.
	ErrUnsafe = errors.New("images: unsafe archive")
	// ErrTooLarge refuses an image beyond a bound.
	ErrTooLarge = errors.New("images: too large")
	// ErrDamaged says that content is not what its digest says, or no archive at all.
	ErrDamaged = errors.New("images: damaged content")
	// ErrLocked is a folder that another process has taken; the error's text names it.
	ErrLocked = errors.New("images: the folder of images is in use")
	// ErrFull says that the images in use leave no room for another.
	ErrFull = errors.New("images: the store is full")
)

// answer is what a registry's failure means.
type answer struct {
	kind   error
	public string
	// again says that asking again may help, after at least wait.
	again bool
	wait  time.Duration
}

// judge turns a failure of asking registry for image into an answer. Both are shown as they were written.
func judge(image, registry string, err error) answer {
	q := fmt.Sprintf("%q", clip(image, 200))
	var denied *netguard.DeniedError
	var terr *transport.Error
	var dns *net.DNSError
	var nerr net.Error
	var busy *busyError
	switch {
	case errors.As(err, &denied):
		return answer{kind: ErrNotAllowed, public: fmt.Sprintf("image %s: this spindle may not connect to %s (%s); use a registry on the public internet, over https", q, registry, denied.Reason)}
	case strings.Contains(err.Error(), "SSRF protection"): // the library refuses before the guard does, and has no error to test for
		return answer{kind: ErrNotAllowed, public: fmt.Sprintf("image %s: registry %s sends to an address that this spindle may not connect to", q, registry)}
	case errors.As(err, &busy):
		a := answer{kind: ErrRateLimited, again: true, wait: busy.wait}
		when := ""
		if a.wait > 0 {
			when = fmt.Sprintf(", and asks to wait %s", a.wait)
		}
		a.public = fmt.Sprintf("image %s: registry %s refuses more pulls for now%s (not your code); retry later, or the spindle's owner can set credentials or a mirror", q, registry, when)
		return a
	case errors.As(err, &terr):
		return judgeStatus(q, registry, terr)
	case errors.As(err, &dns) && dns.IsNotFound:
		return answer{kind: ErrUnreachable, public: fmt.Sprintf("image %s: there is no host %s; check the registry's name", q, registry)}
	case errors.Is(err, errTooLong):
		return answer{kind: ErrTooLarge, public: fmt.Sprintf("image %s: registry %s sends more than a description of an image has", q, registry)}
	case errors.Is(err, errRedirects):
		return answer{kind: ErrUnreachable, public: fmt.Sprintf("image %s: registry %s only ever redirects; it may be set up wrongly", q, registry)}
	case errors.As(err, &nerr) && nerr.Timeout():
		return answer{kind: ErrUnreachable, again: true, public: fmt.Sprintf("image %s: registry %s did not answer in time (not your code)", q, registry)}
	}
	return answer{kind: ErrUnreachable, again: true, public: fmt.Sprintf("image %s: registry %s could not be reached (not your code)", q, registry)}
}

func judgeStatus(q, registry string, e *transport.Error) answer {
	said := words(e)
	switch code := e.StatusCode; {
	case code == http.StatusNotFound, has(e, transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode):
		return answer{kind: ErrNotFound, public: fmt.Sprintf("there is no image %s in registry %s%s; check its name and tag, or leave the image out", q, registry, said)}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return answer{kind: ErrUnauthorised, public: fmt.Sprintf("registry %s does not let this spindle have image %s%s: it does not exist, or is private; the spindle's owner can give credentials for the registry", registry, q, said)}
	case code >= 500 || code == http.StatusRequestTimeout:
		return answer{kind: ErrUnreachable, again: code != http.StatusNotImplemented, public: fmt.Sprintf("image %s: registry %s has a fault of its own: status %d%s (not your code)", q, registry, code, said)}
	default:
		return answer{kind: ErrUnreachable, public: fmt.Sprintf("image %s: registry %s gave an answer that is of no use: status %d%s", q, registry, code, said)}
	}
}

func has(e *transport.Error, codes ...transport.ErrorCode) bool {
	for _, d := range e.Errors {
		for _, c := range codes {
			if d.Code == c {
				return true
			}
		}
	}
	return false
}

// words is what the registry said of its refusal, in brackets, or nothing.
func words(e *transport.Error) string {
	if len(e.Errors) == 0 {
		return ""
	}
	d := e.Errors[0]
	s := d.Message
	if s == "" {
		s = strings.ToLower(strings.ReplaceAll(string(d.Code), "_", " "))
	}
	if s = clip(s, 120); s == "" {
		return ""
	}
	return " (it says: " + s + ")"
}

// clip bounds text from outside and keeps it on one line.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// fault is an *engines.Error of a kind.
func fault(public string, kind, err error) error {
	if err == nil {
		return engines.Fault(public, kind)
	}
	return engines.Fault(public, fmt.Errorf("%w: %w", kind, err))
}

// local turns a failure on this side of the wire into an *engines.Error, if it is not one yet.
func local(image string, err error) error {
	var e *engines.Error
	q := fmt.Sprintf("image %q", clip(image, 200))
	switch {
	case err == nil, errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return engines.Fault(q+": the pull was stopped", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return engines.Fault("the spindle's disk is full (not your code); its owner has to free some space", err)
	case errors.Is(err, ErrFull):
		return engines.Fault(q+": the images in use leave no room for it on this spindle (not your code); retry later", err)
	case errors.Is(err, ErrTooLarge):
		return engines.Fault(q+" is larger than this spindle allows: "+reason(err, ErrTooLarge), err)
	case errors.Is(err, ErrUnsafe):
		return engines.Fault(q+" is refused: "+reason(err, ErrUnsafe), err)
	case errors.Is(err, ErrDamaged):
		return engines.Fault(q+" is damaged: "+reason(err, ErrDamaged), err)
	}
	return engines.Fault(q+" could not be made ready (not your code)", err)
}

// reason is what was said after kind in err's text.
func reason(err, kind error) string {
	_, why, _ := strings.Cut(err.Error(), kind.Error()+": ")
	return clip(why, 200)
}
