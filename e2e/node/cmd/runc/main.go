// Command belayer-runc removes the seccomp filter from a container's configuration and runs runc, which is
// built without libseccomp: its headers are not part of a Go module.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if bundle, creates := bundle(os.Args[1:]); creates {
		if err := withoutSeccomp(filepath.Join(bundle, "config.json")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	own, err := os.Executable()
	if err == nil {
		runc := filepath.Join(filepath.Dir(own), "runc")
		err = syscall.Exec(runc, append([]string{runc}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// bundle returns the folder of the container's configuration, if the command creates a container.
func bundle(arguments []string) (string, bool) {
	folder, creates := ".", false
	for i, argument := range arguments {
		creates = creates || argument == "create" || argument == "run"
		if value, found := strings.CutPrefix(argument, "--bundle="); found {
			folder = value
		} else if argument == "--bundle" && i+1 < len(arguments) {
			folder = arguments[i+1]
		}
	}
	return folder, creates
}

func withoutSeccomp(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	var linux map[string]json.RawMessage
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
