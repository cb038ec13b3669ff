#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/files.h"
#include "cli/attention_table.h"
#include "cli/common.h"
#include "cli/docs_pages.h"
#include "compile/program.h"
#include "config/load.h"
#include "config/names.h"
#include "infer/model_spec.h"
#include "plan/kernel_row.h"
#include "train/run_setup.h"

namespace octet {
namespace {

constexpr double kBytesASecond = 3.35e12;  // of an H100's memory
// FLOP a byte from which on a kernel is bound by products, whose number goes by the shape.
constexpr double kBoundByProducts = 16;
constexpr size_t kTypesShown = 3;

constexpr const char* kLlama =
    "{kind: llama, hidden: 256, layers: 2, heads: 4, ffn: 704, vocab: 512, seq: 128}";
constexpr const char* kGpt2 =
    "{kind: gpt2, hidden: 256, layers: 2, heads: 4, vocab: 512, seq: 128}";
// The recipe says nothing of ranks, states and rules of updates.
constexpr const char* kRuns[] = {"parallel: {ranks: 1}",
                                 "parallel: {ranks: 2}",
                                 "optim: {kind: muon, state_m: e4m3+x}",
                                 "optim: {state_m: e4m3+x, state_v: e4m3+x}",
                                 "optim: {state_m: e4m3, state_v: f32}",
                                 "recipe: {activation_scale: tensor}"};

// A row, and what the plans say of the nodes that take it.
struct KernelRowUse {
  std::string op, row;
  std::string speed;                      // "", "generic", "reference"
  std::map<std::string, int> types = {};  // "bf16 x bf16 -> bf16, f32": recipes that have it
  double bytes = 0;                       // fewest moved, an element of the largest tensor; 0: no
                                          // recipe takes the row
  double flops = 0;                       // beside them, a byte moved
};

class RowUses {
 public:
  explicit RowUses(const Catalogue& catalogue) : catalogue_(catalogue) {
    for (const KernelRow* row : catalogue.target().rows) {
      uses_[row] = {.op = std::string(op_def(row->op).name),
                    .row = std::string(row->name),
                    .speed = row->facts.reference ? "reference"
                             : row->facts.generic ? "generic"
                                                  : ""};
    }
  }

  void look_at(const std::string& recipe, const RunConfig& config) {
    const ProgramOptions options =
        program_options(config, model_from_config(posix_files(), config));
    Program program(options, catalogue_);
    std::vector<FunctionKey> keys = program.train_keys();
    for (const std::string_view name : {function::prefill, function::decode})
      keys.push_back({name, {.batch = 2, .seq = 16, .cache = 64}});
    for (const FunctionKey& key : keys) {
      const Plan& plan = program.plan(key);
      for (const PlanStep& step : plan.steps) look_at(recipe, plan.graph, step);
    }
  }

  std::vector<KernelRowUse> all() {
    std::vector<KernelRowUse> result;
    for (const KernelRow* row : catalogue_.target().rows) {
      KernelRowUse& use = uses_.at(row);
      for (const auto& [types, recipes] : recipes_[row])
        use.types[types] = static_cast<int>(recipes.size());
      result.push_back(use);
    }
    std::ranges::stable_sort(result, {},
                             [](const KernelRowUse& use) { return find_op(use.op)->code; });
    return result;
  }

 private:
  void look_at(const std::string& recipe, const Graph& graph, const PlanStep& step) {
    const KernelRow* row = step.kernel.row;
    const Node& node = graph.node(step.node);
    const std::string& name = step.kernel.name;
    const size_t begin = name.find(' '), end = name.rfind(": ");
    recipes_[row][name.substr(begin + 1, end - begin - 1)].insert(recipe);
    int64_t n_elems = 1;
    for (const ValueIds* ids : {&node.operands, &node.results}) {
      for (const ValueId id : *ids)
        if (id != kNoValue) n_elems = std::max(n_elems, graph.type(id).n_elems());
    }
    const Cost cost = cost_of(graph, node);
    KernelRowUse& use = uses_.at(row);
    const double bytes = cost.bytes / static_cast<double>(n_elems);
    if (bytes <= use.bytes) return;
    use.bytes = bytes;
    use.flops = cost.flops / cost.bytes;
  }

  const Catalogue& catalogue_;
  std::map<const KernelRow*, KernelRowUse> uses_;
  std::map<const KernelRow*, std::map<std::string, std::set<std::string>>> recipes_;
};

void plan_one(RowUses& uses, const std::string& recipe, const char* model, const char* run) {
  const std::string text = fmt::format("model: {}\n{}\ndata: {{train: [.]}}\n", model, run);
  try {
    uses.look_at(recipe, parse_config(text, "kernels", {"recipe.base=" + recipe}).config);
  } catch (const Error& error) {  // a choice that this recipe does not have
    if (error.code() != ErrorCode::invalid_argument) throw;
  }
}
void plan_all(RowUses& uses) {
  for (const std::string& recipe : recipe_names()) {
    plan_one(uses, recipe, kGpt2, "");
    for (const char* run : kRuns) plan_one(uses, recipe, kLlama, run);
  }
}

constexpr std::string_view kIntroduction = R"(# Rows of kernels

Each op has one row or more in a back end's table: a kernel, or a few in a fixed order. A plan takes
the cheapest row that accepts a node's types and shapes and prints its name behind them: `rms_norm
bf16 x bf16 -> bf16, f32: vectors`. `octet plan --without "rms_norm vectors"` plans without that
row. A generic row works element by element on any types; the reference decodes, computes in doubles
and encodes.

`octet docs kernels` makes this page. It plans two layers of a Llama and of a GPT-2 with every
recipe, and the Llama also on two ranks and with other update rules and optimizer states. Types are
the first four operands and the results; those that most recipes use come first. Bytes are the
fewest that a node must move, for each element of its largest tensor; the page shows the most of
these runs. Floor is the time that these bytes take at the 3.35 TB/s of an H100's memory, in
microseconds for a million elements; "products" marks rows whose products take longer, which depends
on the shape.

- **codes**: operands are 8-bit data with scales, read as they lie.
- **vectors**: a thread takes 16 elements of one type; rows are multiples of 16.
- **expanded**, **groups**, **wide**: updates in tiles of 128, 256 and 4 elements; each leaves what
  does not fill a tile to the next.
- **cudnn**, **tensor cores**, **cached**, **plain**: attention, by what multiplies.
- **chunks**, **one token**: the gated delta rule, of whole texts and of a token behind a state.
- **as f32**: on a CPU, between conversions from and to FP16.

The last table of a back end lists what its rows of attention accept besides causal attention with
as many keys as queries: a full mask, a window, documents (where each query's keys begin), ranges
with both ends under a full mask, another number of keys, a bias, the bias's gradient, and keys of a
KV cache. A row that accepts caches alone is marked so. The reference accepts everything.
)";

std::string types_text(const KernelRowUse& use) {
  std::vector<std::pair<std::string, int>> types(use.types.begin(), use.types.end());
  std::ranges::stable_sort(types, std::ranges::greater{}, &std::pair<std::string, int>::second);
  std::string text;
  for (size_t i = 0; i < std::min(types.size(), kTypesShown); ++i)
    text += fmt::format("{}`{}`", i == 0 ? "" : "; ", types[i].first);
  if (types.size() > kTypesShown) text += fmt::format("; {} more", types.size() - kTypesShown);
  return text;
}

std::string floor_text(const KernelRowUse& use) {
  if (use.flops > kBoundByProducts) return "products";
  return fmt::format("{:.2f}", use.bytes / kBytesASecond * 1e12);
}

}  // namespace

DocsPage kernels_page() {
  DocsPage page{.markdown = std::string(kIntroduction)};
  const Backend both[] = {cuda::make_plan_backend({.n_threads = 1}),
                          cpu::make_backend(1, cpu::detect_isa())};
  for (const Backend& made : both) {
    const Target& target = made.catalogue->target();
    RowUses uses(*made.catalogue);
    plan_all(uses);
    Table table{{"op", "row", "types", "bytes an element", "floor"}, {}};
    std::vector<std::string> others;
    for (const KernelRowUse& use : uses.all()) {
      page.json.push_back({{"backend", target.backend},
                           {"op", use.op},
                           {"row", use.row},
                           {"speed", use.speed},
                           {"types", use.types},
                           {"bytes", use.bytes},
                           {"flops", use.flops}});
      const bool is_generic = use.speed == "generic" && use.row != use.speed;
      if (!use.types.empty()) {
        table.rows.push_back({"`" + use.op + "`", use.row + (is_generic ? ", generic" : ""),
                              types_text(use), fmt::format("{:.2f}", use.bytes),
                              target.backend == "cuda" ? floor_text(use) : ""});
      } else if (use.speed != "reference") {
        others.push_back(fmt::format("`{} {}`", use.op, use.row));
      }
    }
    page.markdown +=
        fmt::format("\n## {}\n\n{}\nTaken by none of these runs: {}.\n\n{}", target.backend,
                    table_markdown(table), fmt::join(others, ", "), attention_table(target));
  }
  return page;
}

}  // namespace octet
