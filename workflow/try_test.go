package workflow

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTry(t *testing.T) {
	b, _ := os.ReadFile("/tmp/wf/cases.txt")
	for _, c := range strings.Split(string(b), "\n====\n") {
		c = strings.ReplaceAll(c, "\\t", "\t")
		s, ds := Parse(".tangled/workflows/test.yml", []byte(c), Limits{})
		fmt.Println("------", s != nil)
		for _, d := range ds {
			fmt.Println(d)
		}
	}
}
