#include "fuzz/fuzz_targets.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace octet::fuzz {
namespace {

constexpr std::string_view kOurFault = "internal check failed";

// The verifier's errors are internal, since other graphs are ours; a failed CHECK within it is not
// the graph's fault. Its message may quote the text: what stands there proves nothing.
bool is_whole(const Graph& graph, std::string_view text) {
  try {
    verify(graph);
  } catch (const Error& error) {
    const bool is_ours = std::string_view(error.what()).find(kOurFault) != std::string_view::npos;
    expect(!is_ours || text.find(kOurFault) != std::string_view::npos, error.what());
    return false;
  }
  return true;
}

}  // namespace

void graph(std::string_view bytes) {
  is_refused([&] {
    const Graph graph = parse_graph(bytes, "a.ir");
    if (!is_whole(graph, bytes)) return;
    const std::string text = print(graph);
    std::string again;
    const bool is_lost = is_refused([&] { again = print(parse_graph(text, "b.ir")); });
    expect(!is_lost && again == text, "printed text is read as the same graph");
  });
}

}  // namespace octet::fuzz
