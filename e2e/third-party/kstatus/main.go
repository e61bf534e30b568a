// Judges records by kstatus, as Flux and `helm --wait` do.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type example struct {
	Record unstructured.Unstructured `json:"record"`
	Status status.Status             `json:"kstatus"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var examples []example
	if err := json.Unmarshal(text, &examples); err != nil {
		return err
	}
	for _, wanted := range examples {
		result, err := status.Compute(&wanted.Record)
		if err != nil {
			return err
		}
		if result.Status != wanted.Status {
			return fmt.Errorf("%s: %s instead of %s: %s", wanted.Record.GetName(), result.Status, wanted.Status, result.Message)
		}
	}
	if len(examples) == 0 {
		return fmt.Errorf("no examples in %s", path)
	}
	fmt.Println(len(examples), "records")
	return nil
}
