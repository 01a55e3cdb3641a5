// Contestant: the official Go SDK on bare net/http.
//
//	gosdk_server --transport stdio|http --port N --mode session-json|session-sse|stateless --tools N --more
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	staticURI = "bench://static"
	largest   = 64 << 20
	allTools  = 1_000_000
)

var staticText = strings.Repeat("The same text at every reading. ", 5)

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}
type text struct {
	Text string `json:"text"`
}
type pause struct {
	Ms int `json:"ms"`
}
type stepping struct {
	Count int `json:"count"`
}
type nothing struct{}
type query struct {
	Query  string   `json:"query"`
	Limit  int      `json:"limit,omitempty"`
	Exact  bool     `json:"exact,omitempty"`
	Labels []string `json:"labels,omitempty"`
}
type record struct {
	Number int      `json:"number"`
	Name   string   `json:"name"`
	Score  float64  `json:"score"`
	Tags   []string `json:"tags"`
}
type noted struct {
	record
	Note *string `json:"note"`
}
type given[T any] struct {
	Result T `json:"result"`
}

func table() ([]record, []noted) {
	var records []record
	var without []noted
	for n := range 1000 {
		one := record{n, fmt.Sprintf("entry number %d", n), float64(n) * 1.5, []string{"alpha", "beta", fmt.Sprintf("t%d", n)}}
		records = append(records, one)
		without = append(without, noted{one, nil})
	}
	return records, without
}

// answer gives a value as text and as structured content.
func answer[T any](words string, value T) (*mcp.CallToolResult, given[T], error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}, given[T]{value}, nil
}

func listed[T any](values []T) (*mcp.CallToolResult, given[[]T], error) {
	words, err := json.Marshal(values)
	if err != nil {
		return nil, given[[]T]{}, err
	}
	return answer(string(words), values)
}

func add(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, given[int], error) {
	return answer(strconv.Itoa(in.A+in.B), in.A+in.B)
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, given[string], error) {
	return answer(in.Text, in.Text)
}

func wait(_ context.Context, _ *mcp.CallToolRequest, in pause) (*mcp.CallToolResult, given[string], error) {
	time.Sleep(time.Duration(in.Ms) * time.Millisecond)
	return answer("ok", "ok")
}

func steps(ctx context.Context, request *mcp.CallToolRequest, in stepping) (*mcp.CallToolResult, given[string], error) {
	token := request.Params.GetProgressToken()
	if token == nil {
		return nil, given[string]{}, errors.New("no progress token")
	}
	for step := 1; step <= in.Count; step++ {
		notice := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(step), Total: float64(in.Count)}
		if err := request.Session.NotifyProgress(ctx, notice); err != nil {
			return nil, given[string]{}, err
		}
	}
	return answer("ok", "ok")
}

func lookUp(_ context.Context, _ *mcp.CallToolRequest, in query) (*mcp.CallToolResult, given[string], error) {
	return answer(in.Query, in.Query)
}

// offer puts the common tools on a server; a long list has exactly the tools it was asked for.
func offer(server *mcp.Server, extra int) {
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "add_sync", Description: "Add two integers in a plain function."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Return the text back."}, echo)
	for n := range extra {
		about := fmt.Sprintf("Look something up in collection %d.\n\nGives the first entries that fit the query, as text.", n)
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("look_up_%04d", n), Description: about}, lookUp)
	}
	if extra > 0 {
		return
	}
	mcp.AddTool(server, &mcp.Tool{Name: "bump", Description: "Tell who listens that the text changed."},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, given[string], error) {
			if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: staticURI}); err != nil {
				return nil, given[string]{}, err
			}
			return answer("ok", "ok")
		})
}

// offerMore puts the tools on a server that only some scenarios call.
func offerMore(server *mcp.Server) {
	records, without := table()
	mcp.AddTool(server, &mcp.Tool{Name: "wait", Description: "Answer later."}, wait)
	mcp.AddTool(server, &mcp.Tool{Name: "steps", Description: "Report progress so many times."}, steps)
	mcp.AddTool(server, &mcp.Tool{Name: "records", Description: "Return a thousand records."},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, given[[]record], error) {
			return listed(records)
		})
	mcp.AddTool(server, &mcp.Tool{Name: "records_null", Description: "Return a thousand records without notes."},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, given[[]noted], error) {
			return listed(without)
		})
}

func main() {
	transport := flag.String("transport", "stdio", "stdio or http")
	port := flag.Int("port", 0, "where to serve HTTP")
	mode := flag.String("mode", "session-json", "how to serve HTTP")
	extra := flag.Int("tools", 0, "how many extra tools to offer")
	more := flag.Bool("more", false, "offer the further tools too")
	flag.Parse()

	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, &mcp.ServerOptions{
		PageSize:           allTools,
		SchemaCache:        mcp.NewSchemaCache(),
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	offer(server, *extra)
	if *more {
		offerMore(server)
	}
	static := &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: staticURI, Text: staticText}}}
	server.AddResource(&mcp.Resource{URI: staticURI, Name: "static"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) { return static, nil })

	if *transport == "stdio" {
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{MaxLineLength: largest}))
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		JSONResponse:        *mode != "session-sse",
		Stateless:           *mode == "stateless",
		MaxRequestBodyBytes: largest,
	})
	routes := http.NewServeMux()
	routes.Handle("/mcp", handler)
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), routes))
}
