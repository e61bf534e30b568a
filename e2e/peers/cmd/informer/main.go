// Command informer runs an ordinary client-go shared informer on pods and ConfigMaps of one
// namespace and prints what its handlers see, one JSON object per line:
//
//	{"event":"synced"}
//	{"event":"add","kind":"ConfigMap","name":"a","version":"12","data":"1"}
//
// It ends on SIGTERM, or when its standard input is closed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is one thing that happened.
type line struct {
	Event   string `json:"event"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Data is a ConfigMap's `data.value`, or a pod's phase.
	Data string `json:"data,omitempty"`
	// Resync marks an update whose object did not change.
	Resync bool `json:"resync,omitempty"`
}

// printer writes whole lines, whichever handler they come from.
type printer struct {
	mutex sync.Mutex
	out   *json.Encoder
}

func (p *printer) print(said line) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := p.out.Encode(said); err != nil {
		// Nobody listens any more.
		os.Exit(0)
	}
}

func describe(event string, object any) line {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	meta, ok := object.(metav1.Object)
	if !ok {
		return line{Event: "unknown"}
	}
	said := line{Event: event, Name: meta.GetName(), Version: meta.GetResourceVersion()}
	switch known := object.(type) {
	case *corev1.Pod:
		said.Kind, said.Data = "Pod", string(known.Status.Phase)
	case *corev1.ConfigMap:
		said.Kind, said.Data = "ConfigMap", known.Data["value"]
	}
	return said
}

func (p *printer) handlers() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { p.print(describe("add", object)) },
		UpdateFunc: func(before, object any) {
			said := describe("update", object)
			said.Resync = describe("update", before).Version == said.Version
			p.print(said)
		},
		DeleteFunc: func(object any) { p.print(describe("delete", object)) },
	}
}

func run(ctx context.Context, namespace string, resync time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.UserAgent = "informer"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, resync, informers.WithNamespace(namespace))
	out := &printer{out: json.NewEncoder(os.Stdout)}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Pods().Informer(),
		factory.Core().V1().ConfigMaps().Informer(),
	} {
		if _, err := informer.AddEventHandler(out.handlers()); err != nil {
			return fmt.Errorf("add a handler: %w", err)
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("no first list of %v", kind)
		}
	}
	out.print(line{Event: "synced"})
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func main() {
	namespace := flag.String("namespace", "default", "the namespace to watch")
	resync := flag.Duration("resync", 0, "how often every object is handed out again; 0 is never")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		// The parent holds the other end: when it is gone, so are we.
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := run(ctx, *namespace, *resync); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}
