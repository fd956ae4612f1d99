package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"spindle/blobs"
	"spindle/daemon"
	"spindle/engines/images"
	"spindle/internal/clock"
	"spindle/internal/netguard"
)

// registryWait bounds the wait for a registry's answer: a nixery server builds an image before it describes it.
const registryWait = 15 * time.Minute

// newImages opens the store of images that c describes.
func newImages(c config, state string, hosts map[string]string, log *slog.Logger) (*images.Store, error) {
	mirrors, err := c.mirrors()
	if err != nil {
		return nil, err
	}
	dir := c.ImageDir
	if dir == "" {
		dir = filepath.Join(state, "images")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("SPINDLE_IMAGES_DIR: %w", err)
	}
	disk, err := blobs.New(blobs.Config{Dir: filepath.Join(dir, "blobs"), MaxBytes: c.LayersMaxMB << 20, Clock: clock.Real{}, Log: log})
	if err != nil {
		return nil, fmt.Errorf("open the store of layers: %w", err)
	}
	guard := netguard.New(netguard.Config{Dev: c.Dev, Hosts: hosts})
	store, err := images.New(images.Config{
		Dir: dir, Blobs: daemon.ImageBytes{Disk: disk}, Dev: c.Dev, AuthFile: c.ImageAuth, Mirrors: mirrors, Registries: c.ImageRegistries,
		Transport: guard.HTTPClient(netguard.ClientOptions{Timeout: -1, HeaderTimeout: registryWait, MaxConnsPerHost: 16}).Transport,
		MaxImage:  c.ImageMaxMB << 20, MaxBytes: c.ImagesMaxMB << 20, Clock: clock.Real{}, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the store of images: %w", err)
	}
	return store, nil
}

// mirrors reads registry=host entries.
func (c config) mirrors() (map[string][]string, error) {
	out := map[string][]string{}
	for _, m := range c.ImageMirrors {
		registry, host, ok := strings.Cut(m, "=")
		if !ok || registry == "" || host == "" {
			return nil, fmt.Errorf("SPINDLE_IMAGES_MIRRORS: %q is not registry=host, such as docker.io=mirror.example.com", m)
		}
		out[registry] = append(out[registry], host)
	}
	return out, nil
}
