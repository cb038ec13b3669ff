#include "cli/formats_command.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/philox.h"
#include "cli/formats_io.h"
#include "cli/quantized_file.h"

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

std::string roundings_text(Dtype dtype) {
  std::string text;
  for (const std::string_view name : kRoundingNames) {
    if (!rounding_supported(dtype, *rounding_from_name(name))) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text;
}

void run_list(const GlobalOptions& options) {
  Table table{{"format", "bits", "rule", "max_finite", "min_normal", "min_positive", "inf",
               "amax_target", "gradient_amax_target", "expansion_m", "expansion_v", "roundings"},
              {}};
  for (const FormatRow& row : kFormats) {
    table.rows.push_back({std::string(dtype_name(row.dtype)), std::to_string(format_bits(row)),
                          std::string(rule_name(row.rule)), value_text(max_finite(row.dtype)),
                          value_text(min_normal(row.dtype)), value_text(min_positive(row.dtype)),
                          row.has_inf ? "yes" : "no", value_text(row.amax_target),
                          value_text(row.gradient_amax_target), number_text(row.expansion_ratio_m),
                          number_text(row.expansion_ratio_v), roundings_text(row.dtype)});
  }
  print_table(options, table);
}

void run_table(const GlobalOptions& options, const std::string& name) {
  const FormatRow row = find_format(format_from_name(name));
  const int bits = format_bits(row);
  Table table{{"code", "hex", "bits", "value", "f32_bits"}, {}};
  for (uint32_t code = 0; code < (1u << bits); ++code) {
    const float value = decode(row.dtype, code);
    table.rows.push_back({std::to_string(code), fmt::format("0x{:0{}X}", code, bits / 4),
                          fmt::format("0b{:0{}b}", code, bits), value_text(value),
                          fmt::format("0x{:08X}", bits_of(value))});
  }
  print_table(options, table);
}

struct EncodeFlags {
  std::string format, rounding = "near", from = "f32", bits_file;
  bool saturate = true, nan_to_zero = false;
};

std::vector<float> read_values(const std::string& from) {
  const std::string bytes = read_stdin();
  if (from == "f32") return words_of<float>(bytes, "standard input");
  const Dtype source = format_from_name(from);
  std::vector<float> values;
  for (const uint16_t word : words_of<uint16_t>(bytes, "standard input")) {
    values.push_back(decode(source, word));
  }
  return values;
}

std::vector<uint32_t> random_words(const GlobalOptions& options, const std::string& file,
                                   size_t count) {
  if (!file.empty()) {
    auto words = words_of<uint32_t>(read_raw_file(file), file);
    if (words.size() == count) return words;
    throw Error(ErrorCode::bad_data, "[formats] {}: expected {} words, one a value, got {}", file,
                count, words.size());
  }
  const RandomStream random{.name = name_hash("formats"), .seed = options.seed.value_or(0)};
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = random.bits(i);
  return words;
}

void run_encode(const GlobalOptions& options, const EncodeFlags& flags) {
  const Dtype format = format_from_name(flags.format);
  const auto rounding = rounding_from_name(flags.rounding);
  if (!rounding) {
    throw Error(ErrorCode::invalid_argument, "[formats] --rounding: expected one of {}, got {}",
                roundings_text(format), flags.rounding);
  }
  check_rounding(format, *rounding);
  const std::vector<float> values = read_values(flags.from);
  std::vector<uint32_t> random;
  if (*rounding == Rounding::sr || !flags.bits_file.empty()) {
    random = random_words(options, flags.bits_file, values.size());
  }
  EncodeOptions encode_options{
      .saturate = flags.saturate,
      .nan_to_zero = flags.nan_to_zero,
      .random_bits = 0,
      .source = flags.from == "f32" ? Dtype::f32 : format_from_name(flags.from)};
  std::vector<uint16_t> codes(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!random.empty()) encode_options.random_bits = random[i];
    codes[i] = static_cast<uint16_t>(encode(format, values[i], *rounding, encode_options));
  }
  if (dtype_bytes(format) == 2) return write_words<uint16_t>(codes);
  const std::vector<uint8_t> bytes(codes.begin(), codes.end());
  write_words<uint8_t>(bytes);
}

void run_decode(const std::string& name) {
  const Dtype format = format_from_name(name);
  const std::string bytes = read_stdin();
  std::vector<float> values;
  const auto decode_all = [&](const auto& codes) {
    values.reserve(codes.size());
    for (const uint32_t code : codes) values.push_back(decode(format, code));
  };
  if (dtype_bytes(format) == 2) {
    decode_all(words_of<uint16_t>(bytes, "standard input"));
  } else {
    decode_all(words_of<uint8_t>(bytes, "standard input"));
  }
  write_words<float>(values);
}

void add_encode(CLI::App& formats, GlobalOptions& options) {
  auto* command = formats.add_subcommand("encode", "values on standard input to codes");
  auto flags = std::make_shared<EncodeFlags>();
  command->add_option("--format", flags->format, "number format")->required();
  command->add_option("--rounding", flags->rounding, "rne ta rtz sr hr hrv near floor ceil");
  command->add_flag("--saturate,!--no-saturate", flags->saturate,
                    "overflow gives the largest finite value");
  command->add_flag("--nan-to-zero", flags->nan_to_zero, "NaN gives zero");
  command->add_option("--from", flags->from, "type of the values")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "fp16"}));
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
  constexpr uint64_t kMostBytes = uint64_t{16} << 30;
  return posix_files().read_stream(path, kMostBytes);
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
  table->callback([name, &options] { run_table(options, *name); });
  add_encode(*formats, options);
  auto* decode_command = formats->add_subcommand("decode", "codes on standard input to f32");
  auto format = std::make_shared<std::string>();
  decode_command->add_option("--format", *format, "number format")->required();
  decode_command->callback([format] { run_decode(*format); });
  add_quantize_commands(*formats, options);
}

}  // namespace octet
