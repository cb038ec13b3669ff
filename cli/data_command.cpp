#include "cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "cli/data_chat.h"
#include "cli/data_rows.h"
#include "cli/progress.h"
#include "cli/recipe_files.h"
#include "config/load.h"
#include "data/row_plan.h"
#include "data/text_samples.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "train/finetune.h"
#include "train/picture_texts.h"
#include "train/run_setup.h"
#include "train/text_rows.h"

namespace octet {
namespace {

struct InspectFlags {
  std::string config;
  int64_t n = 5;
};

struct MixedEntry {
  std::string path = {};
  std::string_view kind = {};
  double weight = 1;
  int64_t n_tokens = 0;
};

struct Inspected {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenStream stream;
  std::vector<ChatSample> samples;  // all of the training data
  int64_t n_documents = 0;          // texts and conversations that they are of
  int64_t n_chat_samples = 0;
  bool trains_starts = true;  // of text: whether a document's first token is a label
  int64_t n_labels = 0;       // of text, in an epoch
  std::optional<ChatReport> chat;
  Pieces documents;              // of conversations, as they would lie in rows
  PackReport rows;               // of them
  std::vector<int64_t> lengths;  // of the rows
  int64_t seq = 0;
  bool has_windows = false;     // of `seq` tokens, whatever a document's length
  std::vector<MixedEntry> mix;  // of data.train, where there are conversations
};

// The first token of a stream is no label, nor is that of a document where these are apart.
bool trains_starts(const RunConfig& config) {
  return !config.data.pack && config.data.document_boundaries == DocumentBoundaries::ignore;
}

// Documents of text, as samples of their own.
std::vector<ChatSample> documents_of_text(const TokenStream& stream, const RunConfig& config) {
  std::vector<ChatSample> samples;
  for_each_token(stream, [&](int64_t at, int32_t, uint8_t flags) {
    const bool begins = at == 0 || (flags & kDocumentStart) != 0;
    if (begins) {
      samples.push_back(
          {.place = fmt::format("document {}", samples.size()), .format = "text", .first = at});
    }
    const bool is_label =
        (flags & kNotTrained) == 0 && (!begins || (at > 0 && trains_starts(config)));
    ++samples.back().n_tokens;
    samples.back().n_trained += is_label ? 1 : 0;
    return true;
  });
  return samples;
}

// That an epoch reads, with weights the first one: of documents in rows of their own without those
// that do not fit.
int64_t labels_of_text(const Inspected& data, const RunConfig& config) {
  int64_t n = 0;
  if (!data.stream.parts().empty()) {
    const RowLoader loader(data.stream, row_options(config));
    return loader.count(loader.rows_of_epoch(0)).n_labels();
  }
  if (config.data.pack) {
    for (const Piece& piece : find_pieces(data.stream, row_options(config)).all)
      n += piece.places();
    return n;
  }
  for (const ChatSample& sample : data.samples) n += sample.n_trained;
  return n;
}

// Of samples of conversations, those of a record one after the other.
int64_t n_records(const std::vector<ChatSample>& samples) {
  int64_t n = 0;
  for (size_t i = 0; i < samples.size(); ++i)
    n += i == 0 || samples[i].record != samples[i - 1].record ? 1 : 0;
  return n;
}

// Conversations, and text beside them.
void take_entries(std::vector<DataEntry> entries, const RunConfig& config, Inspected& to) {
  to.stream = join_entries(entries);
  int64_t first = 0;
  for (DataEntry& entry : entries) {
    std::vector<ChatSample> samples =
        entry.is_chat ? std::move(entry.chat.samples) : documents_of_text(entry.stream, config);
    to.n_documents += entry.is_chat ? n_records(samples) : std::ssize(samples);
    to.n_chat_samples += entry.is_chat ? std::ssize(samples) : 0;
    for (ChatSample& sample : samples) {
      sample.first += first;
      if (!entry.is_chat) sample.place = fmt::format("{} {}", entry.paths.front(), sample.place);
      to.samples.push_back(std::move(sample));
    }
    if (entry.is_chat) {
      if (!to.chat) to.chat.emplace();
      add_report(entry.chat.report, *to.chat);
    }
    to.mix.push_back({.path = fmt::format("{}", fmt::join(entry.paths, ", ")),
                      .kind = entry.is_chat ? "conversations" : "text",
                      .weight = entry.weight,
                      .n_tokens = entry.stream.n_tokens()});
    first += entry.stream.n_tokens();
  }
}

Inspected inspect_conversations(const RunConfig& config, const GlobalOptions& options) {
  Files& files = posix_files();
  if (config.data.train.empty()) {
    throw Error(ErrorCode::invalid_argument, "data.train: expected files or folders, got none");
  }
  Inspected result;
  result.tokenizer = make_tokenizer(files, config.data.tokenizer);
  result.seq = config.model.seq;
  take_entries(open_run_entries(files, config, *result.tokenizer, {.threads = options.threads}),
               config, result);
  const RowOptions rows = row_options(config);
  result.documents = find_pieces(result.stream, rows);
  result.lengths = {rows.seq};
  if (result.documents.all.empty()) return result;
  const RowPlan plan(document_samples(result.stream, rows, result.documents), rows);
  result.rows = plan.report();
  result.lengths = plan.lengths();
  return result;
}

// The files of a text with weights, of which an epoch reads some more often than others.
std::vector<MixedEntry> mix_of_text(const TokenStream& stream, const RunConfig& config) {
  std::vector<MixedEntry> mix;
  if (stream.parts().size() != config.data.train.size()) return mix;
  int64_t first = 0;
  for (size_t i = 0; i < config.data.train.size(); ++i) {
    const StreamPart& part = stream.parts()[i];
    mix.push_back({.path = config.data.train[i],
                   .kind = "text",
                   .weight = part.weight,
                   .n_tokens = part.end - std::exchange(first, part.end)});
  }
  return mix;
}

Inspected inspect_text(const TokenStream& stream, const RunConfig& config) {
  Inspected result;
  result.tokenizer = make_tokenizer(posix_files(), config.data.tokenizer);
  result.stream = stream;
  result.seq = config.model.seq;
  result.samples = documents_of_text(result.stream, config);
  result.n_documents = std::ssize(result.samples);
  result.trains_starts = trains_starts(config);
  result.has_windows = !config.data.pack;
  result.mix = mix_of_text(stream, config);
  result.n_labels = labels_of_text(result, config);
  return result;
}

struct Lengths {
  int64_t least = 0, median = 0, most_of_95 = 0, most = 0;
};

Lengths lengths_of(const std::vector<ChatSample>& samples) {
  std::vector<int64_t> all;
  all.reserve(samples.size());
  for (const ChatSample& sample : samples) all.push_back(sample.n_tokens);
  std::ranges::sort(all);
  const auto at = [&](double share) {
    return all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
  };
  return {all.front(), at(0.5), at(0.95), all.back()};
}

struct SampleTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> flags;
};

SampleTokens tokens_of(const Inspected& data, const ChatSample& sample) {
  const auto n = static_cast<size_t>(sample.n_tokens);
  SampleTokens tokens{std::vector<int32_t>(n), std::vector<uint8_t>(n)};
  data.stream.read(sample.first, tokens.ids, tokens.flags);
  const bool is_first = sample.first == 0;
  if (!data.chat && (is_first || !data.trains_starts)) tokens.flags.front() |= kNotTrained;
  return tokens;
}

// Writes the sample; of a text that is read in windows the first one.
void write_sample(const Inspected& data, const ChatSample& sample) {
  const bool is_longer = sample.n_tokens > data.seq + 1;
  const std::string fit = !is_longer         ? ""
                          : data.has_windows ? fmt::format(", the first {} of them", data.seq + 1)
                                             : ", does not fit";
  write_line("\n--- {} ({}): {} tokens, {} trained{}{}{}", sample.place, sample.format,
             sample.n_tokens, sample.n_trained, fit, sample.note.empty() ? "" : "; ", sample.note);
  ChatSample shown = sample;
  if (is_longer && data.has_windows) shown.n_tokens = data.seq + 1;
  const SampleTokens tokens = tokens_of(data, shown);
  const std::vector<int32_t>& ids = tokens.ids;
  const auto is_trained = [&](size_t i) { return (tokens.flags[i] & kNotTrained) == 0; };
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end < ids.size() && is_trained(end) == is_trained(i)) ++end;
    const std::string text = data.tokenizer->decode(std::span(ids).subspan(i, end - i));
    is_trained(i) ? write_marked(text) : write_out(text);
    i = end;
  }
  write_out("\n");
}

void write_rows(const Inspected& data) {
  const PackReport& rows = data.rows;
  const Pieces& documents = data.documents;
  write_line("too long       {} of {} for rows of {} (longest {}); {} tokens are lost",
             documents.n_too_long, documents.n_documents, data.seq, documents.longest,
             documents.n_lost_tokens);
  if (documents.n_without_labels > 0) {
    write_line("nothing to train  {} parts, left out", documents.n_without_labels);
  }
  write_line("rows           {} an epoch, of {}: {} tokens, {:.1f} % padding", rows.n_rows,
             fmt::join(data.lengths, ", "), rows.n_padded_tokens, 100 * rows.padding_share());
}

// How often an epoch reads each entry, and its share of what is read.
void write_mix(const Inspected& data) {
  double all = 0;
  for (const MixedEntry& entry : data.mix)
    all += entry.weight * static_cast<double>(entry.n_tokens);
  for (const MixedEntry& entry : data.mix) {
    write_line("mix            {}: {}, {} tokens, {} times an epoch, {:.1f} % of it", entry.path,
               entry.kind, entry.n_tokens, entry.weight,
               100 * entry.weight * static_cast<double>(entry.n_tokens) / all);
  }
}

void write_text(const Inspected& data, int64_t n) {
  const Lengths lengths = lengths_of(data.samples);
  write_line("documents      {}, {} tokens", data.n_documents, data.stream.n_tokens());
  write_line("lengths        {} to {}, median {}, 95 % up to {}", lengths.least, lengths.most,
             lengths.median, lengths.most_of_95);
  const auto is_weighted = [](const MixedEntry& entry) { return entry.weight != 1; };
  if (data.mix.size() > 1 || std::ranges::any_of(data.mix, is_weighted)) write_mix(data);
  if (data.chat) {
    write_chat(*data.chat, data.n_chat_samples);
    write_rows(data);
  } else {
    write_line("labels         {} an epoch, of {} tokens", data.n_labels, data.stream.n_tokens());
  }
  const auto n_shown = std::min(static_cast<size_t>(n), data.samples.size());
  for (size_t i = 0; i < n_shown; ++i) write_sample(data, data.samples[i]);
}

OrderedJson sample_json(const Inspected& data, const ChatSample& sample) {
  const auto [ids, flags] = tokens_of(data, sample);
  std::vector<int> mask;
  mask.reserve(flags.size());
  for (const uint8_t flag : flags) mask.push_back((flag & kNotTrained) == 0 ? 1 : 0);
  return {{"place", printable(sample.place)},
          {"format", sample.format},
          {"note", sample.note},
          {"text", data.tokenizer->decode(ids)},
          {"ids", ids},
          {"mask", mask}};
}

void write_json(const Inspected& data, int64_t n) {
  const Lengths lengths = lengths_of(data.samples);
  OrderedJson json = {{"documents", data.n_documents},
                      {"tokens", data.stream.n_tokens()},
                      {"lengths",
                       {{"least", lengths.least},
                        {"median", lengths.median},
                        {"share_95", lengths.most_of_95},
                        {"most", lengths.most}}}};
  if (data.chat) {
    const PackReport& rows = data.rows;
    json["chat"] = chat_json(*data.chat);
    json["rows"] = {{"rows", rows.n_rows},
                    {"seq", data.seq},
                    {"lengths", data.lengths},
                    {"places", rows.n_padded_tokens},
                    {"padding_share", rows.padding_share()},
                    {"too_long", data.documents.n_too_long},
                    {"lost_tokens", data.documents.n_lost_tokens},
                    {"without_labels", data.documents.n_without_labels}};
  }
  if (!data.chat) json["labels"] = data.n_labels;
  for (const MixedEntry& entry : data.mix) {
    json["mix"].push_back({{"path", entry.path},
                           {"kind", entry.kind},
                           {"weight", entry.weight},
                           {"tokens", entry.n_tokens}});
  }
  json["samples"] = OrderedJson::array();
  const auto n_shown = std::min(static_cast<size_t>(n), data.samples.size());
  for (size_t i = 0; i < n_shown; ++i) {
    json["samples"].push_back(sample_json(data, data.samples[i]));
  }
  write_out(json_text(json));
}

// Of a file that is no configuration the error says where data are named.
LoadedConfig inspected_config(const std::string& config, const std::vector<std::string>& sets) {
  const std::string path = config_path(config);
  try {
    return load_config(path, sets);
  } catch (const Error& error) {
    if (path.ends_with(".yaml") || path.ends_with(".yml")) throw;
    throw Error(error.code(),
                "{}; expected a run's configuration, which names the data that are shown: "
                "`octet data inspect RUN.yaml`, or a recipe's name with --set data.train={}",
                error.what(), config);
  }
}

// Conversations of a model that sees pictures, which are rows of arrays.
bool has_pictures(const Files& files, const RunConfig& config) {
  const std::string& folder = config.model.path;
  if (!folder.empty() && !files.exists(join_path(folder, "config.json"))) return false;
  return reads_pictures(files, config, model_from_config(files, config));
}

}  // namespace

void add_data_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* data = app.add_subcommand("data", "what a run would be trained on");
  data->require_subcommand(1);
  CLI::App* inspect_data = data->add_subcommand(
      "inspect", "samples with what is trained of them, lengths, and what was dropped and why");
  inspect_data->add_option("config", flags->config, "YAML file of a run, or a recipe's name")
      ->required()
      ->type_name("CONFIG");
  inspect_data->add_option("--n", flags->n, "samples to show")->check(CLI::NonNegativeNumber);
  inspect_data->callback([flags, &options] {
    Files& files = posix_files();
    LoadedConfig loaded = inspected_config(flags->config, options.config_sets());
    take_tokenizer_of_model(files, loaded);
    const RunConfig& config = loaded.config;
    Inspected data;
    const bool has_rows = has_pictures(files, config) || compares_answers(config);
    if (has_conversations(config) && !has_rows) {
      data = inspect_conversations(config, options);
    } else {
      const ModelSpec spec = model_from_config(files, config);
      settle_negatives(files, loaded.config, spec);
      settle_pictures(files, loaded, spec, make_log(options));
      const Dataset all = open_run_data(files, config, spec,
                                        {.log = make_log(options),
                                         .threads = options.threads,
                                         .on_progress = tokenize_painter(options)});
      if (all.train_rows != nullptr) {
        std::unique_ptr<Tokenizer> tokenizer;
        if (compares_answers(config)) tokenizer = make_tokenizer(files, config.data.tokenizer);
        return write_row_data(all, config, flags->n, tokenizer.get(), options);
      }
      data = inspect_text(all.train, config);
    }
    options.json ? write_json(data, flags->n) : write_text(data, flags->n);
  });
}

}  // namespace octet
