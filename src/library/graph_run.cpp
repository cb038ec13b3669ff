#include "library/graph_run.h"

#include <fmt/ranges.h>

#include <limits>

#include "base/error.h"
#include "compile/lower.h"
#include "formats/codec.h"
#include "formats/to_odd.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/driver.h"
#include "plan/row_unavailable.h"

namespace octet {
namespace {

constexpr std::string_view kBf16Words = "bf16";

// To what kernels of a CPU are at home with.
bool is_aligned(const void* data) {
  constexpr uintptr_t kAlignment = 16;
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
}

bool is_real(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::fp16;
}

// NumPy's types that a value is read from, and the one that it is written as.
struct NumpyTypes {
  std::string reads, writes;
};
NumpyTypes numpy_types(Dtype dtype) {
  const char* const kIntegers = "|i1 |u1 <i2 <u2 <i4 <u4 <i8 <u8";
  switch (dtype) {
    case Dtype::f32:
    case Dtype::bf16:
      return {"<f2 <f4 <f8", "<f4"};
    case Dtype::fp16:
      return {"<f2 <f4 <f8", "<f2"};
    case Dtype::i32:
      return {kIntegers, "<i4"};
    case Dtype::u32:
      return {kIntegers, "<u4"};
    case Dtype::i16:
      return {kIntegers, "<i2"};
    case Dtype::u16:
      return {kIntegers, "<u2"};
    case Dtype::u8:
      return {kIntegers, "|u1"};
    case Dtype::int8:
      return {"|i1", "|i1"};
    case Dtype::boolean:
      return {"|b1", "|b1"};
    default:
      return {"|u1", "|u1"};
  }
}

template <typename T>
T element(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof value);
  return value;
}
template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Calls f(T{}) for a NumPy type of integers.
template <typename F>
auto visit_integers(std::string_view descr, F&& f) {
  const bool is_signed = descr[1] == 'i';
  switch (descr[2]) {
    case '1':
      return is_signed ? f(int8_t{}) : f(uint8_t{});
    case '2':
      return is_signed ? f(int16_t{}) : f(uint16_t{});
    case '4':
      return is_signed ? f(int32_t{}) : f(uint32_t{});
    default:
      return is_signed ? f(int64_t{}) : f(uint64_t{});
  }
}

ArrayView view_of(const NumpyArray& array) {
  return {array.descr, array.shape, std::as_bytes(std::span(array.bytes))};
}

double number_of(const ArrayView& array, size_t i) {
  if (array.descr == kBf16Words)
    return static_cast<double>(decode<Dtype::bf16>(element<uint16_t>(array.bytes, i)));
  if (array.descr == "<f2")
    return static_cast<double>(decode<Dtype::fp16>(element<uint16_t>(array.bytes, i)));
  if (array.descr == "<f4") return static_cast<double>(element<float>(array.bytes, i));
  if (array.descr == "<f8") return element<double>(array.bytes, i);
  return visit_integers(
      array.descr, [&]<typename T>(T) { return static_cast<double>(element<T>(array.bytes, i)); });
}

std::string real_bytes(const ArrayView& array, Dtype dtype, size_t n) {
  std::string bytes;
  constexpr EncodeOptions kOptions{.saturate = false};
  for (size_t i = 0; i < n; ++i) {
    const double x = number_of(array, i);
    if (dtype == Dtype::f32) {
      put(bytes, static_cast<float>(x));
    } else {
      put(bytes, static_cast<uint16_t>(encode(dtype, to_odd(x), Rounding::near, kOptions)));
    }
  }
  return bytes;
}

// Throws Error{invalid_argument} for a number that the type does not have.
std::string integer_bytes(const ArrayView& array, const std::string& writes, size_t n) {
  return visit_integers(writes, [&]<typename To>(To) {
    return visit_integers(array.descr, [&]<typename From>(From) {
      std::string bytes;
      for (size_t i = 0; i < n; ++i) {
        const From x = element<From>(array.bytes, i);
        if (!std::in_range<To>(x)) {
          throw Error(ErrorCode::invalid_argument, "expected numbers from {} to {}, got {}",
                      static_cast<int64_t>(std::numeric_limits<To>::min()),
                      static_cast<int64_t>(std::numeric_limits<To>::max()), x);
        }
        put(bytes, static_cast<To>(x));
      }
      return bytes;
    });
  });
}

// The value's bytes; throws Error{invalid_argument} without the input's name.
std::string value_bytes(const ArrayView& array, const TensorType& type) {
  const auto [reads, writes] = numpy_types(type.dtype);
  const bool is_bf16 = array.descr == kBf16Words && is_real(type.dtype);
  const bool is_known = reads.find(array.descr) != reads.npos && array.descr.size() == 3;
  if (!is_bf16 && !is_known)
    throw Error(ErrorCode::invalid_argument, "expected type {} for {}, got {}",
                reads.size() > 3 ? "one of " + reads : reads, to_string(type), array.descr);
  if (array.shape != type.stored_shape())
    throw Error(ErrorCode::invalid_argument, "expected shape {} for {}, got {}",
                to_string(type.stored_shape()), to_string(type), to_string(array.shape));
  const auto n = static_cast<size_t>(type.n_stored());
  if (is_real(type.dtype)) return real_bytes(array, type.dtype, n);
  if (reads.size() > 3) return integer_bytes(array, writes, n);
  return {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()};
}

// BF16's values as f32.
void widen_bf16(std::span<const std::byte> words, std::span<std::byte> to) {
  for (size_t i = 0; i < words.size() / 2; ++i) {
    const float x = decode<Dtype::bf16>(element<uint16_t>(words, i));
    std::memcpy(to.data() + i * sizeof x, &x, sizeof x);
  }
}

// Bytes of an input that are read where they lie, or that were made of an array.
struct GivenInput {
  std::span<const std::byte> bytes;
  std::string made;
};

// By input, in the graph's order; throws one Error for all that is wrong. is_kept(input, array):
// whether it is read where it lies.
template <typename F>
std::vector<GivenInput> bytes_of_inputs(const Graph& graph, const ArrayViews& arrays,
                                        const F& is_kept) {
  std::vector<GivenInput> all(graph.inputs.size());
  std::vector<std::string> faults;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    const TensorType& type = graph.type(input.value);
    const auto found = arrays.find(input.name);
    if (found == arrays.end()) {
      const bool is_state = input.kind == InputKind::state || input.kind == InputKind::derived;
      faults.push_back(fmt::format("expected an array '{}' of {}{}, got none", input.name,
                                   to_string(type),
                                   is_state ? ", which a run keeps between its steps" : ""));
      continue;
    }
    try {
      if (is_kept(input, found->second)) {
        all[i].bytes = found->second.bytes;
      } else {
        all[i].made = value_bytes(found->second, type);
        all[i].bytes = std::as_bytes(std::span(all[i].made));
      }
    } catch (const Error& error) {
      faults.push_back(fmt::format("'{}': {}", input.name, error.what()));
    }
  }
  for (const auto& [name, array] : arrays) {
    if (graph.find_input(name) == nullptr)
      faults.push_back(fmt::format("'{}' is no input of the graph", name));
  }
  if (!faults.empty()) throw Error(ErrorCode::invalid_argument, "{}", fmt::join(faults, "; "));
  return all;
}

// Whether the array is the input's value as it lies in memory.
bool is_as_it_lies(const TensorType& type, const ArrayView& array) {
  const bool is_bf16 = type.dtype == Dtype::bf16;
  return array.descr == (is_bf16 ? kBf16Words : numpy_types(type.dtype).writes) &&
         array.shape == type.stored_shape();
}

std::span<std::byte> span_of(const OutputSpans& outputs, const GraphOutput& output,
                             const NumpyArray& form) {
  const auto found = outputs.find(output.name);
  const size_t size =
      static_cast<size_t>(n_elems(form.shape)) * static_cast<size_t>(form.descr[2] - '0');
  if (found == outputs.end() || found->second.size() != size)
    throw Error(ErrorCode::invalid_argument, "'{}': expected memory of {} bytes, got {}",
                output.name, size, found == outputs.end() ? 0 : found->second.size());
  return found->second;
}

Graph runnable(const Graph& graph, const Catalogue& catalogue) {
  for (const Node& node : graph.nodes) {
    const auto* attrs = std::get_if<CollectiveAttrs>(&node.attrs);
    if (attrs != nullptr && attrs->ranks > 1)
      throw Error(ErrorCode::invalid_argument, "expected a graph of one rank, got one of {}",
                  attrs->ranks);
  }
  Graph result = graph;
  if (result.phase == Phase::logical) result = run_passes(result, {"fp32"});
  if (result.phase != Phase::lowered) result = run_passes(result, {"fuse"});
  result = lower(result, catalogue);
  verify(result);
  return result;
}

}  // namespace

double number_at(const NumpyArray& array, size_t i) {
  return number_of(view_of(array), i);
}

GraphRun::GraphRun(const Graph& graph, Backend backend)
    : machine_(std::move(backend)), graph_(runnable(graph, machine_.catalogue())) {
  if (is_asynchronous()) {
    own_ = std::make_unique<BoundGraph>(graph_, machine_.device(), machine_.catalogue());
  } else {
    block();
  }
}

BoundBlock& GraphRun::block() {
  if (!block_)
    bind_available_rows(machine_.catalogue(), [&] {
      block_ = std::make_unique<BoundBlock>(graph_, "", std::vector<std::string>{}, machine_);
    });
  return *block_;
}

NumpyArray GraphRun::output_form(const GraphOutput& output) const {
  const TensorType& type = graph_.type(output.value);
  return {numpy_types(type.dtype).writes, type.stored_shape(), {}};
}

NumpyArrays GraphRun::operator()(const NumpyArrays& inputs) {
  ArrayViews views;
  for (const auto& [name, array] : inputs) views[name] = view_of(array);
  NumpyArrays results;
  OutputSpans spans;
  for (const GraphOutput& output : graph_.outputs) {
    NumpyArray& array = results[output.name] = output_form(output);
    const auto width = static_cast<size_t>(array.descr[2] - '0');
    array.bytes.resize(static_cast<size_t>(n_elems(array.shape)) * width);
    spans[output.name] = std::as_writable_bytes(std::span(array.bytes));
  }
  run(views, spans);
  return results;
}

int64_t GraphRun::run(const ArrayViews& inputs, const OutputSpans& outputs) {
  for (const GraphOutput& output : graph_.outputs) span_of(outputs, output, output_form(output));
  const CallLock::Held held = machine_.enter();
  return is_asynchronous() ? run_copied(inputs, outputs) : run_in_place(inputs, outputs);
}

bool GraphRun::is_overwritten(const GraphInput& input) const {
  return std::ranges::any_of(
      graph_.outputs, [&](const GraphOutput& output) { return output.updates == input.value; });
}

int64_t GraphRun::run_in_place(const ArrayViews& inputs, const OutputSpans& outputs) {
  const std::vector<GivenInput> given =
      bytes_of_inputs(graph_, inputs, [&](const GraphInput& input, const ArrayView& array) {
        return is_as_it_lies(graph_.type(input.value), array) && is_aligned(array.bytes.data()) &&
               !is_overwritten(input);
      });
  std::vector<std::byte*> from, to;
  // Converted ones at addresses that kernels take; inputs are not written but for those copied.
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  const auto allocate = [&](size_t bytes) {
    memory.push_back(machine_.device().allocate(std::max<int64_t>(1, static_cast<int64_t>(bytes))));
    return memory.back()->data();
  };
  int64_t n_copied = 0;
  for (const GivenInput& input : given) {
    if (input.made.empty()) {
      from.push_back(const_cast<std::byte*>(input.bytes.data()));
      continue;
    }
    from.push_back(allocate(input.made.size()));
    std::memcpy(from.back(), input.made.data(), input.made.size());
    n_copied += std::ssize(input.made);
  }
  for (const GraphOutput& output : graph_.outputs) {
    const std::span<std::byte> span = outputs.at(output.name);
    const bool is_kept = graph_.type(output.value).dtype != Dtype::bf16 && is_aligned(span.data());
    to.push_back(is_kept ? span.data()
                         : allocate(static_cast<size_t>(graph_.type(output.value).n_bytes())));
  }
  block().run({.inputs = from, .outputs = to}, machine_);
  for (size_t i = 0; i < to.size(); ++i) {
    const GraphOutput& output = graph_.outputs[i];
    const std::span<std::byte> span = outputs.at(output.name);
    if (output.updates != kNoValue) n_copied += std::ssize(span);
    if (to[i] == span.data()) continue;
    n_copied += std::ssize(span);
    const auto bytes = static_cast<size_t>(graph_.type(output.value).n_bytes());
    if (graph_.type(output.value).dtype == Dtype::bf16) {
      widen_bf16({to[i], bytes}, span);
    } else {
      std::memcpy(span.data(), to[i], bytes);
    }
  }
  return n_copied;
}

int64_t GraphRun::run_copied(const ArrayViews& inputs, const OutputSpans& outputs) {
  int64_t n_copied = 0;
  const std::vector<GivenInput> given =
      bytes_of_inputs(graph_, inputs, [&](const GraphInput& input, const ArrayView& array) {
        return is_as_it_lies(graph_.type(input.value), array);
      });
  BoundPlan& bound = own_->bound;
  for (size_t i = 0; i < given.size(); ++i) {
    bound.write_input(graph_.inputs[i].name, given[i].bytes.data(), std::ssize(given[i].bytes));
    n_copied += std::ssize(given[i].bytes);
  }
  bound.run();
  for (const GraphOutput& output : graph_.outputs) {
    const std::span<std::byte> span = outputs.at(output.name);
    n_copied += std::ssize(span);
    if (graph_.type(output.value).dtype == Dtype::bf16) {
      std::string words(static_cast<size_t>(graph_.type(output.value).n_bytes()), '\0');
      bound.read_output(output.name, words.data(), std::ssize(words));
      widen_bf16(std::as_bytes(std::span(words)), span);
    } else {
      bound.read_output(output.name, span.data(), std::ssize(span));
    }
  }
  return n_copied;
}

void GraphRun::run_on_device(const BlockCall& call) {
  for (const GraphInput& input : graph_.inputs) {
    if (is_overwritten(input))
      throw Error(
          ErrorCode::invalid_argument,
          "'{}': expected a graph that leaves its inputs as they are, got one that updates it",
          input.name);
  }
  const CallLock::Held held = machine_.enter();
  block().run(call, machine_);
}

int64_t GraphRun::workspace_bytes() {
  return block().workspace_bytes();
}

}  // namespace octet
