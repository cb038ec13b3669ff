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

namespace octet {
namespace {

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
T element(const std::string& bytes, size_t i) {
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

std::string real_bytes(const NumpyArray& array, Dtype dtype, size_t n) {
  std::string bytes;
  constexpr EncodeOptions kOptions{.saturate = false};
  for (size_t i = 0; i < n; ++i) {
    const double x = number_at(array, i);
    if (dtype == Dtype::f32) {
      put(bytes, static_cast<float>(x));
    } else {
      put(bytes, static_cast<uint16_t>(encode(dtype, to_odd(x), Rounding::near, kOptions)));
    }
  }
  return bytes;
}

// Throws Error{invalid_argument} for a number that the type does not have.
std::string integer_bytes(const NumpyArray& array, const std::string& writes, size_t n) {
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
std::string value_bytes(const NumpyArray& array, const TensorType& type) {
  const auto [reads, writes] = numpy_types(type.dtype);
  if (reads.find(array.descr) == reads.npos || array.descr.size() != 3)
    throw Error(ErrorCode::invalid_argument, "expected type {} for {}, got {}",
                reads.size() > 3 ? "one of " + reads : reads, to_string(type), array.descr);
  if (array.shape != type.stored_shape())
    throw Error(ErrorCode::invalid_argument, "expected shape {} for {}, got {}",
                to_string(type.stored_shape()), to_string(type), to_string(array.shape));
  const auto n = static_cast<size_t>(type.n_stored());
  if (is_real(type.dtype)) return real_bytes(array, type.dtype, n);
  if (reads.size() > 3) return integer_bytes(array, writes, n);
  return array.bytes;
}

NumpyArray array_of(const std::string& bytes, const TensorType& type) {
  NumpyArray array{numpy_types(type.dtype).writes, type.stored_shape(), bytes};
  if (type.dtype != Dtype::bf16) return array;
  array.bytes.clear();
  for (size_t i = 0; i < bytes.size() / 2; ++i)
    put(array.bytes, decode<Dtype::bf16>(element<uint16_t>(bytes, i)));
  return array;
}

// Bytes by input; throws one Error for all that is wrong.
std::map<std::string, std::string> input_bytes(const Graph& graph, const NumpyArrays& arrays) {
  std::map<std::string, std::string> all;
  std::vector<std::string> faults;
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    const auto found = arrays.find(input.name);
    if (found == arrays.end()) {
      const bool is_kept = input.kind == InputKind::state || input.kind == InputKind::derived;
      faults.push_back(fmt::format("expected an array '{}' of {}{}, got none", input.name,
                                   to_string(type),
                                   is_kept ? ", which a run keeps between its steps" : ""));
      continue;
    }
    try {
      all[input.name] = value_bytes(found->second, type);
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
  if (array.descr == "<f2")
    return static_cast<double>(decode<Dtype::fp16>(element<uint16_t>(array.bytes, i)));
  if (array.descr == "<f4") return static_cast<double>(element<float>(array.bytes, i));
  if (array.descr == "<f8") return element<double>(array.bytes, i);
  return visit_integers(
      array.descr, [&]<typename T>(T) { return static_cast<double>(element<T>(array.bytes, i)); });
}

GraphRun::GraphRun(const Graph& graph, Backend backend)
    : backend_(std::move(backend)),
      graph_(runnable(graph, *backend_.catalogue)),
      run_(graph_, *backend_.device, *backend_.catalogue) {}

NumpyArrays GraphRun::operator()(const NumpyArrays& inputs) {
  for (const auto& [name, bytes] : input_bytes(graph_, inputs))
    run_.bound.write_input(name, bytes.data(), std::ssize(bytes));
  run_.bound.run();
  NumpyArrays results;
  for (const GraphOutput& output : graph_.outputs) {
    const TensorType& type = graph_.type(output.value);
    std::string bytes(static_cast<size_t>(type.n_bytes()), '\0');
    run_.bound.read_output(output.name, bytes.data(), std::ssize(bytes));
    results[output.name] = array_of(bytes, type);
  }
  return results;
}

}  // namespace octet
