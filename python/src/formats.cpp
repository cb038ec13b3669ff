// octet.formats: arrays as buffers, choices by name.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "formats/arrays.h"
#include "formats/names.h"
#include "formats/quantize.h"
#include "math/expansion_options.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

// Values of `source`, f32, bf16 or fp16, and how they are encoded.
struct EncodeCall {
  std::string format, rounding, source;
  bool saturate = true, nan_to_zero = false;
  uint32_t seed = 0;
};

Dtype source_dtype(const std::string& name) {
  return name == "f32" ? Dtype::f32 : format_from_name(name);
}

void encode_into(const EncodeCall& call, nb::handle values, nb::handle codes, nb::handle bits) {
  const Dtype format = format_from_name(call.format);
  ArrayEncoding encoding{.format = format,
                         .rounding = rounding_of_format(format, call.rounding),
                         .options = {.saturate = call.saturate,
                                     .nan_to_zero = call.nan_to_zero,
                                     .random_bits = 0,
                                     .source = source_dtype(call.source)},
                         .bits = {},
                         .seed = call.seed};
  const BufferView from(values, Access::read), to(codes, Access::write);
  std::optional<BufferView> words;
  if (!bits.is_none()) encoding.bits = words.emplace(bits, Access::read).words<uint32_t>();
  const nb::gil_scoped_release unlocked;
  encode_array(encoding, from.bytes(), to.writable());
}

void decode_into(const std::string& format, nb::handle codes, nb::handle values) {
  const Dtype dtype = format_from_name(format);
  const BufferView from(codes, Access::read), to(values, Access::write);
  const nb::gil_scoped_release unlocked;
  decode_array(dtype, from.bytes(), to.writable());
}

// A matrix, and how it is quantized.
struct QuantizeCall {
  std::string format, granularity;
  int64_t rows = 0, cols = 0;
  std::string moment = "m", math = "exact";

  MatrixShape shape() const { return {rows, cols}; }
  Quantizer linear() const {
    return linear_quantizer(format_from_name(format), granularity_from_name(granularity));
  }
  ExpandOptions expanded() const {
    return {.format = format_from_name(format),
            .moment = moment == "v" ? Moment::second : Moment::first,
            .group = expansion_group(granularity_from_name(granularity), shape()),
            .math = math_from_name(math)};
  }
};

bool quantize_into(const QuantizeCall& call, nb::handle x, nb::handle codes, nb::handle scales) {
  const Quantizer quantizer = call.linear();
  const BufferView from(x, Access::read), to(codes, Access::write), scale(scales, Access::write);
  const nb::gil_scoped_release unlocked;
  return quantize(quantizer, call.shape(), from.words<float>(), to.writable_words<uint8_t>(),
                  scale.writable_words<float>());
}

bool expand_into(const QuantizeCall& call, nb::handle x, nb::handle codes, nb::handle meta) {
  const ExpandOptions options = call.expanded();
  const BufferView from(x, Access::read), to(codes, Access::write), words(meta, Access::write);
  const nb::gil_scoped_release unlocked;
  return expand_quantize(options, from.words<float>(), to.writable_words<uint8_t>(),
                         words.writable_words<uint32_t>());
}

void dequantize_into(const QuantizeCall& call, nb::handle codes, nb::handle scales, nb::handle x) {
  const Quantizer quantizer = call.linear();
  const BufferView from(codes, Access::read), scale(scales, Access::read), to(x, Access::write);
  const nb::gil_scoped_release unlocked;
  dequantize(quantizer, call.shape(), from.words<uint8_t>(), scale.words<float>(),
             to.writable_words<float>());
}

void contract_into(const QuantizeCall& call, nb::handle codes, nb::handle meta, nb::handle x) {
  const ExpandOptions options = call.expanded();
  const BufferView from(codes, Access::read), words(meta, Access::read), to(x, Access::write);
  const nb::gil_scoped_release unlocked;
  expand_dequantize(options, from.words<uint8_t>(), words.words<uint32_t>(),
                    to.writable_words<float>());
}

nb::tuple scale_grid(const QuantizeCall& call) {
  const MatrixShape grid = scale_shape(call.shape(), granularity_from_name(call.granularity));
  return nb::make_tuple(grid.rows, grid.cols);
}

int64_t group_count(const QuantizeCall& call) {
  return expand_groups(call.shape().n_elems(), call.expanded().group);
}

// What the CUDA module takes (backends/cuda/formats_api.h), choices as numbers; they are checked as
// the functions above check them.
int number(Dtype dtype) {
  return static_cast<int>(dtype);
}
int format_number(const std::string& format) {
  return number(format_from_name(format));
}

nb::tuple encode_numbers(const EncodeCall& call) {
  const Dtype format = format_from_name(call.format);
  const Rounding rounding = rounding_of_format(format, call.rounding);
  return nb::make_tuple(number(format), static_cast<int>(rounding),
                        number(source_dtype(call.source)), call.saturate, call.nan_to_zero,
                        call.seed);
}

struct TileOptions {
  Dtype format;
  bool bf16_scales = false, second_moment = false, fast = false;
};
nb::tuple tiles(MatrixShape shape, MatrixShape tile, MatrixShape grid, const TileOptions& options) {
  const int64_t tile_rows = std::max<int64_t>(tile.rows, 1);
  const int64_t tile_cols = std::max<int64_t>(tile.cols, 1);
  return nb::make_tuple(shape.rows, shape.cols, tile_rows, tile_cols, grid.rows, grid.cols,
                        number(options.format), options.bf16_scales, options.second_moment,
                        options.fast);
}

nb::tuple linear_tiles(const QuantizeCall& call) {
  const Quantizer quantizer = call.linear();
  const Granularity& granularity = quantizer.granularity;
  const MatrixShape shape = call.shape(), grid = scale_shape(shape, granularity);
  std::vector<float> none(static_cast<size_t>(scale_shape({}, granularity).n_elems()));
  quantize(quantizer, {}, {}, {}, none);  // an empty matrix: the choices are checked
  const TileOptions options{.format = quantizer.format,
                            .bf16_scales = quantizer.scale_type == Dtype::bf16};
  switch (granularity.kind) {
    case Granularity::Kind::tensor:
      return tiles({1, shape.n_elems()}, {1, shape.n_elems()}, grid, options);
    case Granularity::Kind::row:
      return tiles(shape, {1, shape.cols}, grid, options);
    case Granularity::Kind::group:
      return tiles(shape, {1, granularity.size}, grid, options);
    case Granularity::Kind::block:
      return tiles(shape, {granularity.size, granularity.size}, grid, options);
    default:
      break;
  }
  return {};
}

// Groups run on through the tensor.
nb::tuple expansion_tiles(const QuantizeCall& call) {
  const ExpandOptions options = call.expanded();
  find_expansion(options.format, options.moment);
  const int64_t n = call.shape().n_elems();
  return tiles({1, n}, {1, options.group}, {1, expand_groups(n, options.group)},
               {.format = options.format,
                .second_moment = options.moment == Moment::second,
                .fast = options.math == MathMode::fast});
}

int format_bytes(const std::string& format) {
  return dtype_bytes(format_from_name(format));
}

nb::dict facts(const FormatRow& row) {
  nb::dict result;
  const std::string name(dtype_name(row.dtype));
  result["format"] = name;
  result["bits"] = format_bits(row);
  result["max_finite"] = max_finite(row.dtype);
  result["min_normal"] = min_normal(row.dtype);
  result["min_positive"] = min_positive(row.dtype);
  result["inf"] = row.has_inf;
  result["amax_target"] = row.amax_target;
  result["roundings"] = nb::str(roundings_text(row.dtype).c_str()).attr("split")();
  return result;
}

nb::list all_facts() {
  nb::list result;
  for (const FormatRow& row : kFormats) result.append(facts(row));
  return result;
}

}  // namespace

void bind_formats(nb::module_& module) {
  nb::class_<EncodeCall>(module, "EncodeCall")
      .def(nb::init<std::string, std::string, std::string, bool, bool, uint32_t>());
  nb::class_<QuantizeCall>(module, "QuantizeCall")
      .def(nb::init<std::string, std::string, int64_t, int64_t, std::string, std::string>());
  module.def("encode", encode_into, nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  module.def("decode", decode_into);
  module.def("quantize", quantize_into);
  module.def("expand", expand_into);
  module.def("dequantize", dequantize_into);
  module.def("contract", contract_into);
  module.def("scale_grid", scale_grid);
  module.def("group_count", group_count);
  module.def("format_number", format_number);
  module.def("encode_numbers", encode_numbers);
  module.def("linear_tiles", linear_tiles);
  module.def("expansion_tiles", expansion_tiles);
  module.def("format_bytes", format_bytes);
  module.def("format_facts", all_facts);
}

}  // namespace octet::python
