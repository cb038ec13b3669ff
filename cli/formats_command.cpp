#include "cli/commands.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/named_enum.h"
#include "cli/enum_option.h"
#include "cli/formats_io.h"
#include "formats/arrays.h"
#include "formats/names.h"

namespace octet {
namespace {

std::string number_text(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  return fmt::format("{}", value);
}
// The value itself: an f32 is exact as a double.
std::string value_text(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return number_text(value);
}

std::string_view rule_name(DecodeRule rule) {
  switch (rule) {
    case DecodeRule::ieee:
      return "ieee";
    case DecodeRule::hif8:
      return "hif8";
    case DecodeRule::power:
      return "power";
    case DecodeRule::dynamic:
      return "dynamic";
    case DecodeRule::integer:
      return "integer";
  }
  return "?";
}

void run_list(const GlobalOptions& options) {
  Table table{{"format", "bits", "rule", "max_finite", "min_normal", "min_positive", "inf",
               "amax_target", "gradient_amax_target", "expansion_m", "expansion_v", "roundings"},
              {}};
  for (const FormatRow& row : kFormats) {
    table.rows.push_back(cells(dtype_name(row.dtype), format_bits(row), rule_name(row.rule),
                               value_text(max_finite(row.dtype)), value_text(min_normal(row.dtype)),
                               value_text(min_positive(row.dtype)), row.has_inf ? "yes" : "no",
                               value_text(row.amax_target), value_text(row.gradient_amax_target),
                               number_text(row.expansion_ratio_m),
                               number_text(row.expansion_ratio_v), roundings_text(row.dtype)));
  }
  print_table(options, table);
}

void run_format_table(const GlobalOptions& options, const std::string& name) {
  const FormatRow row = find_format(format_from_name(name));
  const int bits = format_bits(row);
  Table table{{"code", "hex", "bits", "value", "f32_bits"}, {}};
  for (uint32_t code = 0; code < (1u << bits); ++code) {
    const float value = decode(row.dtype, code);
    table.rows.push_back(cells(code, fmt::format("0x{:0{}X}", code, bits / 4),
                               fmt::format("0b{:0{}b}", code, bits), value_text(value),
                               fmt::format("0x{:08X}", bits_of(value))));
  }
  print_table(options, table);
}

// Values beyond a format: the largest finite value, also of Inf, as in training; its overflow code,
// Inf or NaN; or finite values the largest and Inf its code (Micikevicius et al. 2022).
enum class Cast : uint8_t { saturating, overflowing, fp8_paper };
constexpr auto value_names(Cast) {
  return name_list("saturating", "overflowing", "fp8-paper");
}

struct EncodeFlags {
  std::string format, rounding = "near", from = "f32", bits_file;
  bool saturate = true, nan_to_zero = false;
  Cast cast = Cast::saturating;
};

std::vector<uint32_t> random_words(const std::string& file, size_t count) {
  auto words = words_of<uint32_t>(read_raw_file(file), file);
  if (words.size() == count) return words;
  throw Error(ErrorCode::bad_data, "[formats] {}: expected {} words, one a value, got {}", file,
              count, words.size());
}

// The bytes of standard input, whole elements of this type.
std::string read_elements(Dtype dtype) {
  std::string bytes = read_stdin();
  check_whole(bytes, static_cast<size_t>(dtype_bytes(dtype)), "standard input");
  return bytes;
}

void run_encode(const GlobalOptions& options, const EncodeFlags& flags) {
  const Dtype format = format_from_name(flags.format);
  ArrayEncoding encoding{.format = format,
                         .rounding = rounding_of_format(format, flags.rounding),
                         .options = {.saturate = flags.saturate && flags.cast != Cast::overflowing,
                                     .nan_to_zero = flags.nan_to_zero,
                                     .random_bits = 0,
                                     .source = *dtype_from_name(flags.from),
                                     .keeps_inf = flags.cast == Cast::fp8_paper},
                         .bits = {},
                         .seed = options.seed.value_or(0)};
  const std::string values = read_elements(encoding.options.source);
  const size_t n = values.size() / static_cast<size_t>(dtype_bytes(encoding.options.source));
  std::vector<uint32_t> random;
  if (!flags.bits_file.empty()) encoding.bits = random = random_words(flags.bits_file, n);
  std::vector<uint8_t> codes(n * static_cast<size_t>(dtype_bytes(format)));
  encode_array(encoding, std::as_bytes(std::span(values)),
               std::as_writable_bytes(std::span(codes)));
  write_words<uint8_t>(codes);
}

void run_decode(const std::string& name) {
  const Dtype format = format_from_name(name);
  const std::string codes = read_elements(format);
  std::vector<float> values(codes.size() / static_cast<size_t>(dtype_bytes(format)));
  decode_array(format, std::as_bytes(std::span(codes)), std::as_writable_bytes(std::span(values)));
  write_words<float>(values);
}

void add_encode(CLI::App& formats, GlobalOptions& options) {
  auto* command = formats.add_subcommand("encode", "values on standard input to codes");
  auto flags = std::make_shared<EncodeFlags>();
  command->add_option("--format", flags->format, "number format")->required();
  command->add_option("--rounding", flags->rounding, "rne ta rtz sr hr hrv near floor ceil");
  CLI::Option* cast = add_enum_option(
      *command, "--cast", flags->cast,
      "of overflow and Inf: saturating (both give the largest finite value, as in training), "
      "overflowing (both give Inf, or NaN where there is none), fp8-paper (finite overflow "
      "saturates; Inf gives Inf in E5M2, NaN in E4M3)");
  command
      ->add_flag("--saturate,!--no-saturate", flags->saturate, "as --cast saturating, overflowing")
      ->excludes(cast);
  command->add_flag("--nan-to-zero", flags->nan_to_zero, "NaN gives zero");
  command->add_option("--from", flags->from, "type of the values")
      ->check(one_of({"f32", "bf16", "f16", "fp16"}));
  command->add_option("--bits", flags->bits_file, "file of u32 random words, one a value, for sr");
  command->callback([flags, &options] { run_encode(options, *flags); });
}

}  // namespace

std::string read_stdin() {
  std::string bytes;
  char block[1 << 16];
  while (const size_t n = std::fread(block, 1, sizeof(block), stdin)) bytes.append(block, n);
  if (std::ferror(stdin) != 0) {
    throw Error(ErrorCode::io, "[formats] expected values on standard input, cannot read it");
  }
  return bytes;
}

std::string read_raw_file(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 30;
  return posix_files().read_stream(path, kMaxBytes);
}

void add_formats_command(CLI::App& app, GlobalOptions& options) {
  auto* formats = app.add_subcommand("formats", "the number formats: tables, codes, quantizers");
  formats->require_subcommand(1);
  formats->add_subcommand("list", "every format and its numbers")->callback([&options] {
    run_list(options);
  });
  auto name = std::make_shared<std::string>();
  auto* table = formats->add_subcommand("table", "every code of a format and its value");
  table->add_option("name", *name, "number format")->required();
  table->callback([name, &options] { run_format_table(options, *name); });
  add_encode(*formats, options);
  auto* decode_command = formats->add_subcommand("decode", "codes on standard input to f32");
  auto format = std::make_shared<std::string>();
  decode_command->add_option("--format", *format, "number format")->required();
  decode_command->callback([format] { run_decode(*format); });
  add_quantize_commands(*formats, options);
}

}  // namespace octet
