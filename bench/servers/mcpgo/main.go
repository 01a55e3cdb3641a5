// Contestant: mark3labs/mcp-go, with as many workers on stdio as it allows.
//
//	mcpgo_server --transport stdio|http --port N --mode session-json|session-sse|stateless --tools N --more
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const (
	staticURI    = "bench://static"
	mostWorkers  = 100
	longestQueue = 10_000
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
func answer[T any](words string, value T) *mcp.CallToolResult {
	return mcp.NewToolResultStructured(given[T]{value}, words)
}

// offerTool adds a typed tool with both of its schemas.
func offerTool[In, Out any](s *server.MCPServer, name, about string, handle func(context.Context, mcp.CallToolRequest, In) (*mcp.CallToolResult, error)) {
	tool := mcp.NewTool(name, mcp.WithDescription(about), mcp.WithInputSchema[In](), mcp.WithOutputSchema[given[Out]]())
	s.AddTool(tool, mcp.NewTypedToolHandler(handle))
}

func listed[T any](values []T) func(context.Context, mcp.CallToolRequest, nothing) (*mcp.CallToolResult, error) {
	return func(context.Context, mcp.CallToolRequest, nothing) (*mcp.CallToolResult, error) {
		words, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		return answer(string(words), values), nil
	}
}

func add(_ context.Context, _ mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, error) {
	return answer(strconv.Itoa(in.A+in.B), in.A+in.B), nil
}

func echo(_ context.Context, _ mcp.CallToolRequest, in text) (*mcp.CallToolResult, error) {
	return answer(in.Text, in.Text), nil
}

func wait(_ context.Context, _ mcp.CallToolRequest, in pause) (*mcp.CallToolResult, error) {
	time.Sleep(time.Duration(in.Ms) * time.Millisecond)
	return answer("ok", "ok"), nil
}

func lookUp(_ context.Context, _ mcp.CallToolRequest, in query) (*mcp.CallToolResult, error) {
	return answer(in.Query, in.Query), nil
}

// steps reports progress; where the queue of notices is full it lets the writer run and tries again.
func steps(s *server.MCPServer) func(context.Context, mcp.CallToolRequest, stepping) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, request mcp.CallToolRequest, in stepping) (*mcp.CallToolResult, error) {
		if request.Params.Meta == nil || request.Params.Meta.ProgressToken == nil {
			return nil, errors.New("no progress token")
		}
		for step := 1; step <= in.Count; step++ {
			notice := map[string]any{"progressToken": request.Params.Meta.ProgressToken, "progress": step, "total": in.Count}
			err := s.SendNotificationToClient(ctx, "notifications/progress", notice)
			for errors.Is(err, server.ErrNotificationChannelBlocked) {
				runtime.Gosched()
				err = s.SendNotificationToClient(ctx, "notifications/progress", notice)
			}
			if err != nil {
				return nil, err
			}
		}
		return answer("ok", "ok"), nil
	}
}

// offer puts the common tools on a server; a long list has exactly the tools it was asked for.
func offer(s *server.MCPServer, extra int) {
	offerTool[numbers, int](s, "add", "Add two integers.", add)
	offerTool[numbers, int](s, "add_sync", "Add two integers in a plain function.", add)
	offerTool[text, string](s, "echo", "Return the text back.", echo)
	for n := range extra {
		about := fmt.Sprintf("Look something up in collection %d.\n\nGives the first entries that fit the query, as text.", n)
		offerTool[query, string](s, fmt.Sprintf("look_up_%04d", n), about, lookUp)
	}
	if extra > 0 {
		return
	}
	offerTool[nothing, string](s, "join", "Let this session hear of updates.",
		func(context.Context, mcp.CallToolRequest, nothing) (*mcp.CallToolResult, error) {
			return answer("ok", "ok"), nil
		})
	offerTool[nothing, string](s, "bump", "Tell who listens that the text changed.",
		// It keeps no list of a resource's subscribers: its users tell everybody.
		func(context.Context, mcp.CallToolRequest, nothing) (*mcp.CallToolResult, error) {
			s.SendNotificationToAllClients(mcp.MethodNotificationResourceUpdated, map[string]any{"uri": staticURI})
			return answer("ok", "ok"), nil
		})
}

// offerMore puts the tools on a server that only some scenarios call.
func offerMore(s *server.MCPServer) {
	records, without := table()
	offerTool[pause, string](s, "wait", "Answer later.", wait)
	offerTool[stepping, string](s, "steps", "Report progress so many times.", steps(s))
	offerTool[nothing, []record](s, "records", "Return a thousand records.", listed(records))
	offerTool[nothing, []noted](s, "records_null", "Return a thousand records without notes.", listed(without))
}

func main() {
	transport := flag.String("transport", "stdio", "stdio or http")
	port := flag.Int("port", 0, "where to serve HTTP")
	mode := flag.String("mode", "session-json", "how to serve HTTP")
	extra := flag.Int("tools", 0, "how many extra tools to offer")
	more := flag.Bool("more", false, "offer the further tools too")
	flag.Parse()

	s := server.NewMCPServer("bench", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true))
	offer(s, *extra)
	if *more {
		offerMore(s)
	}
	s.AddResource(mcp.NewResource(staticURI, "static"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: staticURI, Text: staticText}}, nil
	})
	if *transport == "stdio" {
		log.Fatal(server.ServeStdio(s, server.WithWorkerPoolSize(mostWorkers), server.WithQueueSize(longestQueue)))
	}
	stateless := *mode == "stateless"
	handler := server.NewStreamableHTTPServer(s, server.WithStateful(!stateless), server.WithStateLess(stateless))
	log.Fatal(handler.Start(fmt.Sprintf("127.0.0.1:%d", *port)))
}
