#include "infer/tasks/request_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "infer/loaded_rms.h"

namespace octet {
namespace {

constexpr const char* kIdentity[] = {"task",     "convention", "shots",  "recipe",
                                     "settings", "document",   "choice", "continuation",
                                     "context",  "prompt"};

void add_samples(const Files& files, const std::string& path, Xxh64& hash) {
  constexpr uint64_t kSamples = 64, kBytes = 1024;
  const auto file = files.open(path);
  hash.update(fmt::format("{}:{};", file_name(path), file->size()));
  std::vector<std::byte> bytes(std::min(kBytes, file->size()));
  const uint64_t step = std::max<uint64_t>(1, (file->size() - bytes.size()) / (kSamples - 1));
  for (uint64_t at = 0; at + bytes.size() <= file->size(); at += step) {
    file->read_at(at, bytes);
    hash.update(bytes);
  }
}

}  // namespace

std::string model_fingerprint(const Files& files, const ModelSource& source) {
  Xxh64 hash;
  const auto add = [&](const std::string& path) {
    if (!files.is_directory(path)) return add_samples(files, path, hash);
    for (const DirectoryEntry& entry : files.list(path)) {
      if (!entry.name.ends_with(".safetensors")) continue;
      add_samples(files, join_path(path, entry.name), hash);
    }
  };
  add(source.weights.path);
  if (!source.weights.adapter.empty()) add(source.weights.adapter);
  return fmt::format("{:016x}", hash.digest());
}

RequestLog::RequestLog(Files& files, const std::string& path, const std::string& model)
    : model_(model) {
  std::string kept;
  if (files.exists(path)) {
    const std::string text = files.read_text(path, uint64_t{4} << 30);
    kept = text.substr(0, text.rfind('\n') + 1);
    keep(kept, path);
  }
  const std::string temporary = path + ".new";
  if (files.exists(temporary)) files.remove(temporary);
  file_ = files.create(temporary);
  file_->write(as_bytes(kept));
  file_->sync();
  files.rename(temporary, path);
}

void RequestLog::keep(std::string_view text, const std::string& path) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = text.find('\n', at);
    const std::string where = fmt::format("{}:{}", path, line);
    OrderedJson json = parse_ordered_json(text.substr(at, end - at), where);
    if (!json.is_object() || !json.contains("model")) {
      throw Error(ErrorCode::bad_data, "[requests] {}: expected a request, got {}", where,
                  json.type_name());
    }
    if (json["model"] != model_) {
      throw Error(ErrorCode::invalid_argument,
                  "--requests: {}: expected answers of this model, {}, got {}; take a new file",
                  path, model_, json["model"].dump());
    }
    std::string key = identity(json);  // before the move, which an assignment would do first
    answers_[std::move(key)] = std::move(json);
    at = end + 1;
  }
}

std::string RequestLog::identity(const OrderedJson& request) {
  std::string text;
  for (const char* key : kIdentity) {
    const auto it = request.find(key);
    if (it == request.end()) continue;
    text += json_line(*it) + '\n';
  }
  return text;
}

const OrderedJson* RequestLog::find(const OrderedJson& request) const {
  if (answers_.empty()) return nullptr;
  const auto it = answers_.find(identity(request));
  return it == answers_.end() ? nullptr : &it->second;
}

void RequestLog::add(const OrderedJson& request, const OrderedJson& answer) {
  if (file_ == nullptr) return;
  OrderedJson line = request;
  line["model"] = model_;
  line.update(answer);
  file_->write(as_bytes(json_line(line) + "\n"));
}

namespace {

std::string format_text(const std::optional<OperandFormat>& format) {
  return format ? operand_format_name(*format) : "";
}

std::string formats_text(const std::optional<LinearFormats>& formats) {
  if (!formats) return "";
  if (!formats->quantized) return "16";
  return fmt::format("8 {} {} {} {} {}", format_text(formats->x), format_text(formats->w),
                     format_text(formats->dy), format_text(formats->backward_x),
                     format_text(formats->backward_w));
}

std::string dtype_text(const std::optional<Dtype>& dtype) {
  return dtype ? std::string(dtype_name(*dtype)) : "";
}

// Each field that a forward pass sees; of the same options the same text.
std::string options_text(const ModelSource& source) {
  const RecipeOptions& options = source.recipe_options;
  std::string text =
      fmt::format("{};{};{};{};{};{};{};{};{}\n",
                  options.scaling ? enum_name(*options.scaling) : "", dtype_text(options.compute),
                  dtype_text(options.activations), enum_name(options.forward_reads),
                  options.quantizes_linear_outputs, options.tf32, enum_name(options.block_scale),
                  static_cast<int>(options.mx_rule), static_cast<int>(source.stored));
  if (options.scale_rounding != ScaleRounding::predicted)
    text += fmt::format("{}\n", enum_name(options.scale_rounding));
  if (options.activation_group != RecipeOptions().activation_group)
    text += fmt::format("{}\n", granularity_name(options.activation_group));
  if (options.saved_attention != SavedAttention::wide)
    text += fmt::format("{}\n", enum_name(options.saved_attention));
  if (options.accumulation) text += fmt::format("{}\n", enum_name(*options.accumulation));
  for (const LinearOverride& line : options.overrides) {
    text += fmt::format("{}={};{};{};{}\n", line.pattern, formats_text(line.formats),
                        format_text(line.x), format_text(line.w), format_text(line.dy));
    if (line.sums) text += fmt::format("{}\n", enum_name(*line.sums));
  }
  if (!predicts_scales(source.recipe)) return text;
  for (const EdgeScale& scale : options.edge_scales)
    text += fmt::format("{}={}\n", scale.pattern, scale.log2);
  for (const auto& [name, rms] : options.initial_rms) text += fmt::format("{}={:a}\n", name, rms);
  return text;
}

uint64_t hash_of(const std::string& text) {
  Xxh64 hash;
  hash.update(text);
  return hash.digest();
}

// True if a text's scales depend on the texts beside it.
bool measures_scales(const ModelSource& source) {
  if (predicts_scales(source.recipe)) return false;
  return measures_batches(find_recipe(source.recipe)) || !source.recipe_options.overrides.empty();
}

}  // namespace

std::string answer_settings(const ModelSource& source, const AnswerLimits& limits) {
  std::string text = fmt::format("longest {}, new {}, tokenizer {:016x}", limits.longest,
                                 limits.n_new, limits.tokenizer);
  if (measures_scales(source)) text += fmt::format(", batch {}", limits.batch);
  if (limits.arithmetic != Arithmetic::own)
    text += fmt::format(", sums of {}", enum_name(limits.arithmetic));
  const std::string options = options_text(source);
  ModelSource plain;
  plain.recipe = source.recipe;
  if (options != options_text(plain)) text += fmt::format(", options {:016x}", hash_of(options));
  return text;
}

}  // namespace octet
