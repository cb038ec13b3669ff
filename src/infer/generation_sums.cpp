#include "infer/generation_sums.h"

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "plan/kernel_row.h"

namespace octet {
namespace {

constexpr int64_t kMaxFew = 2, kTexts = 16;  // texts of a step: at most, and a multiple of it
constexpr std::string_view kFew = "few rows", kWeightOnly = "weight only", kDecoded = "decoded";

[[noreturn]] void refuse_sums(GenerationSums sums, std::string_view expected,
                              std::string_view got) {
  throw Error(ErrorCode::invalid_argument, "--sums {}: expected {}, got {}", enum_name(sums),
              expected, got);
}

bool is_fp8_row(std::string_view row) {
  return row.starts_with("fp8") || row == "blocks";
}

// All rows of GEMMs that are so.
void strike_gemms(Catalogue& catalogue, bool (*is_so)(std::string_view row)) {
  for (const KernelRow* row : catalogue.target().rows) {
    if (row->op == OpCode::gemm && is_so(row->name)) catalogue.strike(row_key(*row));
  }
}

bool is_new_token(const GenerationGemms& gemms) {
  return gemms.function.name == function::decode || gemms.function.name == function::pick;
}

// Formats have the kernels where none of these is another row's.
void expect_rows(GenerationSums sums, const std::vector<GenerationGemms>& all,
                 bool (*is_other)(const GenerationGemms& gemms), std::string_view expected) {
  const auto other = std::ranges::find_if(all, is_other);
  if (other == all.end()) return;
  refuse_sums(sums, expected, fmt::format("'{}' of {} rows", other->kernel, other->n_rows()));
}

}  // namespace

std::string_view sums_of_row(std::string_view row) {
  return row == kFew ? "few" : is_fp8_row(row) ? "fp8" : row;
}

std::vector<GenerationGemms> generation_gemms(const GeneratingModel& model,
                                              const TextModelOptions& options,
                                              const Catalogue& catalogue) {
  const ModelSpec spec = resolved(model.spec);
  expect_text(spec);
  const std::vector<FunctionKey> keys = cached_functions(spec, options, catalogue);
  Program program(inference_options(spec, model.precision, keys.front().size), catalogue, keys);
  std::vector<GenerationGemms> all;
  for (const FunctionKey& key : keys) {
    const size_t first = all.size();
    const Plan& plan = program.plan(key);
    for (const PlanStep& step : plan.steps) {
      if (plan.graph.node(step.node).op != OpCode::gemm) continue;
      const auto same = std::find_if(
          all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
          [&](const GenerationGemms& gemms) { return gemms.kernel == step.kernel.name; });
      if (same != all.end()) {
        ++same->count;
      } else {
        all.push_back({.function = key,
                       .kernel = step.kernel.name,
                       .row = step.kernel.row == nullptr ? "" : step.kernel.row->name,
                       .count = 1});
      }
    }
  }
  return all;
}

void choose_sums(GenerationSums sums, const GeneratingModel& model, TextModelOptions& options,
                 Catalogue& catalogue) {
  if (sums == GenerationSums::by_rows) return;
  if (catalogue.target().backend != "cuda")
    refuse_sums(sums, "a GPU (--device cuda), whose sums depend on the number of rows",
                catalogue.target().backend);
  const Recipe& recipe = find_recipe(model.precision.recipe);
  if (recipe.compute == Dtype::f32)
    refuse_sums(sums, "a recipe that computes in 16 bits (--recipe)", recipe.name);
  switch (sums) {
    case GenerationSums::by_rows:
      return;
    case GenerationSums::few:
      if (options.n_entries > kMaxFew)
        refuse_sums(sums, fmt::format("at most {} texts at a time (--batch)", kMaxFew),
                    std::to_string(options.n_entries));
      expect_rows(
          sums, generation_gemms(model, options, catalogue),
          [](const GenerationGemms& gemms) { return is_new_token(gemms) && gemms.row != kFew; },
          "formats that a kernel of few rows reads (bf16, fp16 or e4m3 with one scale)");
      return;
    case GenerationSums::decoded: {
      strike_gemms(catalogue, [](std::string_view row) {
        return row == kFew || row == kWeightOnly || is_fp8_row(row);
      });
      const auto all = generation_gemms(model, options, catalogue);
      const bool has_codes = is_quantized(model.precision.stored) ||
                             std::ranges::count(all, kDecoded, &GenerationGemms::row) > 0;
      if (!has_codes)
        refuse_sums(sums, "GEMMs or weights in eight bits (--recipe, --weights)", recipe.name);
      return;
    }
    case GenerationSums::fp8: {
      strike_gemms(catalogue,
                   [](std::string_view row) { return row == kFew || row == kWeightOnly; });
      options.n_entries = ceil_div(options.n_entries, kTexts) * kTexts;
      const auto all = generation_gemms(model, options, catalogue);
      const std::string expected =
          "GEMMs with both operands in FP8 (--recipe fp8_linear --weights e4m3)";
      expect_rows(
          sums, all, [](const GenerationGemms& gemms) { return gemms.row == kDecoded; }, expected);
      if (!std::ranges::any_of(all, is_fp8_row, &GenerationGemms::row))
        refuse_sums(sums, expected, recipe.name);
      return;
    }
  }
}

void choose_sums(GenerationSums sums, const ModelSource& source, TextModelOptions& options,
                 const TextMachine& machine) {
  if (sums == GenerationSums::by_rows) return;
  const WeightReader weights(machine.files, source.weights, source.spec, source.nonfinite);
  choose_sums(sums, {source.spec, precision_of(source, weights)}, options, machine.catalogue);
}

}  // namespace octet
