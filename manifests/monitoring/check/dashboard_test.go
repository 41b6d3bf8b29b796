package check

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// board is what Grafana needs of a dashboard.
type board struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

const columns = 24 // of a dashboard

// Grafana loads the dashboard, and each panel has a place of its own and asks something
// that Prometheus understands.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	if b.Title == "" || b.UID == "" || b.SchemaVersion == 0 || len(b.Panels) < 5 {
		t.Fatalf("it lacks something: %+v", b)
	}
	if v := b.Templating.List; len(v) != 1 || v[0].Name != "datasource" || v[0].Type != "datasource" || v[0].Query != "prometheus" {
		t.Errorf("the variables are %+v, want the data source", v)
	}
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if other := ids[p.ID]; other != "" || p.ID == 0 {
			t.Errorf("panels %q and %q have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		p.place(t, cells)
		p.asks(t)
	}
}

// place takes a panel's cells.
func (p panel) place(t *testing.T, cells map[[2]int]string) {
	t.Helper()
	g := p.GridPos
	if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > columns {
		t.Errorf("panel %q has no place: %+v", p.Title, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other := cells[[2]int{x, y}]; other != "" {
				t.Errorf("panel %q lies on %q", p.Title, other)
				return
			}
			cells[[2]int{x, y}] = p.Title
		}
	}
}

func (p panel) asks(t *testing.T) {
	t.Helper()
	if p.Type == "" || p.Title == "" || p.Description == "" || p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
		t.Errorf("panel %q lacks something: %+v", p.Title, p)
	}
	names := map[string]bool{}
	for _, target := range p.Targets {
		if names[target.RefID] || target.RefID == "" {
			t.Errorf("panel %q: the name %q is there twice, or empty", p.Title, target.RefID)
		}
		names[target.RefID] = true
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(filled(target.Expr)); err != nil {
			t.Errorf("panel %q: %s: %v", p.Title, target.Expr, err)
		}
	}
}

// filled has values for Grafana's own variables.
func filled(expression string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(expression)
}
