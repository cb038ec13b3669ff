#include "data/tokenize.h"

#include <time.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/output_folder.h"
#include "base/thread_pool.h"
#include "data/shards.h"
#include "data/token_cache.h"
#include "data/token_stream.h"

namespace octet {
namespace {

constexpr size_t kBatchBytes = 8 << 20, kBatchDocuments = 8192;

// The place of the next document.
struct Position {
  int64_t file = 0, document = 0;
};

struct Tokenized {
  Document document;
  Position next;  // behind it
  std::vector<int32_t> ids = {};
  double seconds = 0;  // encoding
};

timespec thread_time() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now;
}

double seconds_between(const timespec& began, const timespec& ended) {
  return static_cast<double>(ended.tv_sec - began.tv_sec) +
         1e-9 * static_cast<double>(ended.tv_nsec - began.tv_nsec);
}

// The identity of a folder of shards: other inputs or options give other shards.
uint64_t identity_of(const Files& files, const Tokenizer& tokenizer, const TokenizeOptions& options,
                     const std::vector<std::string>& paths) {
  Xxh64 hash;
  const auto number = [&](int64_t value) { hash.add(value); };
  add_vocabulary(hash, tokenizer);
  for (const int32_t id : tokenizer.encode(" Words, 1234 and\n\n\tspaces; it's  naïve <s> \u2014"))
    number(id);
  number(tokenizer.bos().value_or(-1));
  number(tokenizer.eos().value_or(-1));
  hash.update_sized(options.documents.separator);
  hash.update_sized(options.documents.text_key);
  number(static_cast<int64_t>(options.documents.max_document_bytes));
  number(options.shard_tokens);
  number(options.adds_special);
  for (const std::string& path : paths) {
    hash.update_sized(path);
    hash.add(files.size(path));
  }
  return hash.digest();
}

class Run {
 public:
  Run(Files& files, const Tokenizer& tokenizer, const TokenizeOptions& options,
      const TokenizeHooks& hooks)
      : files_(files),
        tokenizer_(tokenizer),
        options_(options),
        hooks_(hooks),
        found_(expand_paths(files, options.paths)),
        paths_(found_.paths),
        identity_(identity_of(files, tokenizer, options, paths_)),
        pool_(options.threads),
        words_(static_cast<size_t>(pool_.n_threads())),
        writer_(files, options.out, tokenizer.vocab_size()) {
    report_.n_files_in_all = static_cast<int64_t>(paths_.size());
    report_.problems = found_.problems;
    if (found_.n_links > 0) {
      report_.problems.push_back(
          fmt::format("[data] {} symbolic links of folders are not followed", found_.n_links));
    }
  }

  TokenizeReport run() {
    take_folder();
    open(at_);
    while (!report_.is_done) {
      if (hooks_.stops && hooks_.stops()) return report_;
      std::vector<Tokenized> batch = read_batch();
      if (batch.empty()) {
        report_.n_files = report_.n_files_in_all;
        report_.is_done = true;
        close_shard({report_.n_files_in_all, 0});
      } else {
        write(batch);
      }
      if (hooks_.on_progress) hooks_.on_progress(report_);
    }
    return report_;
  }

 private:
  std::string manifest_path() const { return join_path(options_.out, kTokenizeManifest); }

  // Shards of other programs lie in many folders under such names, and of an interrupted run only
  // the shard behind the last may be there (ShardWriter::close).
  void take_folder() {
    check_output_folder(files_, "[tokenize] --out", options_.out);
    files_.create_directories(options_.out);
    const EntryKind manifest = files_.entry_kind(manifest_path());
    if (manifest == EntryKind::file) restore();
    if (manifest != EntryKind::file && manifest != EntryKind::none)
      throw_not_replaced("[tokenize] --out", manifest_path());
    if (report_.is_done) return;
    const int64_t n_known = manifest == EntryKind::none ? 0 : report_.n_shards + 1;
    for (const DirectoryEntry& entry : files_.list(options_.out)) {
      const std::optional<int64_t> index = shard_index(entry.name);
      if (index && (*index >= n_known || entry.kind != EntryKind::file))
        throw_not_replaced("[tokenize] --out", join_path(options_.out, entry.name));
    }
    if (manifest == EntryKind::none) write_manifest(at_);
  }

  void restore() {
    const Json json = parse_json(files_.read_text(manifest_path()), manifest_path());
    const JsonObject saved(json, manifest_path());
    if (saved.string("identity") != fmt::format("{:016x}", identity_)) {
      throw Error(ErrorCode::invalid_argument,
                  "[tokenize] {}: expected shards of the same files, tokenizer and options, got "
                  "others: give another --out",
                  options_.out);
    }
    report_.n_shards = saved.integer("shards");
    report_.n_documents = saved.integer("documents");
    report_.n_tokens = saved.integer("tokens");
    report_.n_bytes = saved.integer("bytes");
    report_.is_done = saved.boolean_or("done", false);
    at_ = {saved.integer("next_file"), saved.integer("next_document")};
    report_.n_files = at_.file;
    for (const auto& [why, n] : saved.at("dropped").items()) {
      if (n.is_number_integer()) report_.dropped[why] = n.get<int64_t>();
    }
    const bool is_within = at_.file >= 0 && at_.file <= report_.n_files_in_all && at_.document >= 0;
    if (!is_within || report_.n_shards < 0) {
      throw Error(ErrorCode::bad_data, "[tokenize] {}: expected counts of what is done, got others",
                  manifest_path());
    }
  }

  void open(Position position) {
    at_ = position;
    reader_.reset();
    if (at_.file == report_.n_files_in_all) return;
    reader_.emplace(files_, paths_[static_cast<size_t>(at_.file)], options_.documents);
    for (int64_t i = 0; i < at_.document; ++i) reader_->next();
  }

  std::vector<Tokenized> read_batch() {
    std::vector<Tokenized> batch;
    for (size_t n_bytes = 0; n_bytes < kBatchBytes && batch.size() < kBatchDocuments;) {
      if (!reader_) break;
      std::optional<Document> document = reader_->next();
      if (!document) {
        open({at_.file + 1, 0});
        continue;
      }
      ++at_.document;
      n_bytes += document->text.size();
      batch.push_back({std::move(*document), at_});
    }
    return batch;
  }

  void encode(Tokenized& entry, WordCache& words) const {
    if (!entry.document.dropped.empty()) return;
    const timespec began = thread_time();
    const EncodeTextOptions encoding = {.words = &words};
    try {
      if (options_.adds_special) {
        append_document(tokenizer_, entry.document.text, encoding, entry.ids);
      } else {
        tokenizer_.encode(entry.document.text, encoding, entry.ids);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      entry.document.dropped = "cannot be encoded";
    }
    if (entry.ids.empty()) entry.document.dropped = "no tokens";
    entry.seconds = seconds_between(began, thread_time());
  }

  void write(std::vector<Tokenized>& batch) {
    pool_.run(static_cast<int64_t>(batch.size()), [&](int64_t tile, int thread) {
      encode(batch[static_cast<size_t>(tile)], words_[static_cast<size_t>(thread)]);
    });
    for (const Tokenized& entry : batch) {
      report_.n_files = entry.next.file;
      report_.encode_seconds += entry.seconds;
      if (!entry.document.dropped.empty()) {
        ++report_.dropped[entry.document.dropped];
        continue;
      }
      writer_.add_document(entry.ids);
      ++report_.n_documents;
      report_.n_tokens += static_cast<int64_t>(entry.ids.size());
      report_.n_bytes += static_cast<int64_t>(entry.document.text.size());
      if (writer_.n_tokens() >= options_.shard_tokens) close_shard(entry.next);
    }
  }

  void close_shard(Position next) {
    if (writer_.n_tokens() > 0) writer_.close(report_.n_shards++);
    write_manifest(next);
  }

  void write_manifest(Position next) {
    const Json manifest = {{"identity", fmt::format("{:016x}", identity_)},
                           {"shards", report_.n_shards},
                           {"documents", report_.n_documents},
                           {"tokens", report_.n_tokens},
                           {"bytes", report_.n_bytes},
                           {"dropped", report_.dropped},
                           {"next_file", next.file},
                           {"next_document", next.document},
                           {"done", report_.is_done}};
    write_atomically(files_, manifest_path(), manifest.dump(2) + "\n");
  }

  Files& files_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const TokenizeHooks& hooks_;
  FolderFiles found_;
  const std::vector<std::string>& paths_;
  uint64_t identity_;
  ThreadPool pool_;
  std::vector<WordCache> words_;
  ShardWriter writer_;
  TokenizeReport report_;
  Position at_;
  std::optional<DocumentReader> reader_;
};

}  // namespace

TokenizeReport tokenize_files(Files& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options, const TokenizeHooks& hooks) {
  return Run(files, tokenizer, options, hooks).run();
}

}  // namespace octet
