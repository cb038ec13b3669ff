#include "fuzz/fuzz_targets.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace octet::fuzz {
namespace {

// The verifier's errors are internal, since other graphs are ours; a failed CHECK within it is not
// the graph's fault.
bool is_whole(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Error& error) {
    expect(std::string_view(error.what()).find("check failed") == std::string_view::npos,
           error.what());
    return false;
  }
  return true;
}

}  // namespace

void graph(std::string_view bytes) {
  is_refused([&] {
    const Graph graph = parse_graph(bytes, "a.ir");
    if (!is_whole(graph)) return;
    const std::string text = print(graph);
    std::string again;
    const bool is_lost = is_refused([&] { again = print(parse_graph(text, "b.ir")); });
    expect(!is_lost && again == text, "printed text is read as the same graph");
  });
}

}  // namespace octet::fuzz
