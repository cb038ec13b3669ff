// octet formats quantize | dequantize: f32 on standard input to a safetensors file on standard
// output and back. Tensors: codes [R, C]; scale [grid of scales], or with --expand meta [groups].
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>

#include "base/parse_text.h"
#include "cli/formats_io.h"
#include "cli/quantized_file.h"
#include "formats/names.h"
#include "math/expansion_options.h"

namespace octet {
namespace {

struct QuantizeFlags {
  std::string format, granularity = "tensor", shape, moment = "m", math = "exact";
  bool expand = false;
};

class StdoutWriter : public FileWriter {
 public:
  void write(std::span<const std::byte> bytes) override {
    write_data({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void sync() override {}
  void close() override {}
};

// Standard input as a file that can be read at any place, which a pipe cannot.
class SpooledStdin {
 public:
  SpooledStdin() : descriptor_(memfd_create("octet-stdin", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw_io_error("create", "memory file", errno);
    const std::string bytes = read_stdin();
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (n < 0) {
        const int error = errno;
        ::close(descriptor_);
        throw_io_error("write to", "memory file", error);
      }
      done += static_cast<size_t>(n);
    }
  }
  ~SpooledStdin() { ::close(descriptor_); }
  SpooledStdin(const SpooledStdin&) = delete;
  SpooledStdin& operator=(const SpooledStdin&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

MatrixShape parse_shape(const std::string& text) {
  const size_t comma = text.find(',');
  const auto extent = [](const std::string& word) {
    constexpr int64_t kMax = int64_t{1} << 31;
    const auto n = parse_number<int64_t>(word);
    return n && *n >= 0 && *n < kMax ? n : std::nullopt;
  };
  const auto rows = extent(text.substr(0, comma)), cols = extent(text.substr(comma + 1));
  if (comma != text.npos && rows && cols) return {*rows, *cols};
  throw Error(ErrorCode::invalid_argument, "[formats] --shape: expected ROWS,COLS, got {}", text);
}

TensorSource codes_source(Dtype format, const MatrixShape& shape, std::span<const uint8_t> codes) {
  return span_source(tensor_decl("codes", format, {shape.rows, shape.cols}), std::as_bytes(codes));
}

void write_file(std::span<const TensorSource> tensors,
                std::map<std::string, std::string> metadata) {
  StdoutWriter out;
  write_safetensors(out, tensors, std::move(metadata));
}

bool quantize_expanded(const QuantizeFlags& flags, Dtype format, const MatrixShape& shape,
                       std::span<const float> x) {
  const Granularity granularity = granularity_from_name(flags.granularity);
  const ExpandOptions options{.format = format,
                              .moment = flags.moment == "v" ? Moment::second : Moment::first,
                              .group = expansion_group(granularity, shape),
                              .math = math_from_name(flags.math)};
  std::vector<uint8_t> codes(x.size());
  std::vector<uint32_t> meta(expand_groups(std::ssize(x), options.group));
  const bool nonfinite = expand_quantize(options, x, codes, meta);
  const TensorSource tensors[] = {codes_source(format, shape, codes),
                                  span_source(tensor_decl("meta", Dtype::u32, {std::ssize(meta)}),
                                              std::as_bytes(std::span(meta)))};
  write_file(tensors, {{"format", std::string(dtype_name(format))},
                       {"granularity", flags.granularity},
                       {"math", flags.math},
                       {"moment", flags.moment}});
  return nonfinite;
}

bool quantize_linear(const QuantizeFlags& flags, Dtype format, const MatrixShape& shape,
                     std::span<const float> x) {
  const Quantizer quantizer = linear_quantizer(format, granularity_from_name(flags.granularity));
  const MatrixShape grid = scale_shape(shape, quantizer.granularity);
  std::vector<uint8_t> codes(x.size());
  std::vector<float> scales(grid.n_elems());
  const bool nonfinite = quantize(quantizer, shape, x, codes, scales);
  std::vector<uint16_t> narrow;
  narrow.reserve(scales.size());
  for (const float scale : scales) narrow.push_back(bf16_from_f32(scale));
  const bool is_bf16 = quantizer.scale_type == Dtype::bf16;
  const TensorSource tensors[] = {
      codes_source(format, shape, codes),
      span_source(tensor_decl("scale", quantizer.scale_type, {grid.rows, grid.cols}),
                  is_bf16 ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(scales)))};
  write_file(tensors,
             {{"format", std::string(dtype_name(format))}, {"granularity", flags.granularity}});
  return nonfinite;
}

void run_quantize(const GlobalOptions& options, const QuantizeFlags& flags) {
  const Dtype format = format_from_name(flags.format);
  const MatrixShape shape = parse_shape(flags.shape);
  granularity_from_name(flags.granularity);
  const std::vector<float> x = words_of<float>(read_stdin(), "standard input");
  if (std::ssize(x) != shape.n_elems()) {
    throw Error(ErrorCode::bad_data,
                "[formats] standard input: expected {} x {} f32 values, got {}", shape.rows,
                shape.cols, x.size());
  }
  const bool nonfinite = flags.expand ? quantize_expanded(flags, format, shape, x)
                                      : quantize_linear(flags, format, shape, x);
  if (nonfinite) make_log(options).warning("the input holds NaN or Inf");
}

void run_dequantize(const std::string& path) {
  if (!path.empty()) {
    return write_words<float>(dequantize_file(SafetensorsReader::open(posix_files(), path)));
  }
  const SpooledStdin spooled;
  write_words<float>(dequantize_file(SafetensorsReader::open(posix_files(), spooled.path())));
}

}  // namespace

void add_quantize_commands(CLI::App& formats, GlobalOptions& options) {
  auto* command = formats.add_subcommand("quantize", "f32 on standard input to a safetensors file");
  auto flags = std::make_shared<QuantizeFlags>();
  command->add_option("--format", flags->format, "number format of the codes")->required();
  command->add_option("--granularity", flags->granularity, "tensor, row, 1xG or BxB");
  command->add_option("--shape", flags->shape, "ROWS,COLS")->required();
  command->add_flag("--expand", flags->expand,
                    "dynamic range expansion; 1xG groups run on "
                    "through the tensor");
  command->add_option("--moment", flags->moment, "range target of --expand: m or v")
      ->check(one_of({"m", "v"}));
  command->add_option("--math", flags->math, "powers of --expand")
      ->check(one_of({"exact", "fast"}));
  command->callback([command, flags, &options] {
    expect_flags_read(
        *command, {{"--moment", flags->expand, "--expand"}, {"--math", flags->expand, "--expand"}});
    run_quantize(options, *flags);
  });
  auto* back = formats.add_subcommand("dequantize", "a file of quantize to f32 on standard output");
  auto path = std::make_shared<std::string>();
  back->add_option("file", *path, "safetensors file; standard input when left out");
  back->callback([path] { run_dequantize(*path); });
}

}  // namespace octet
