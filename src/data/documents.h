// The documents of text files and of JSON lines, in order.
//
// A file whose name, less .gz, .xz and .zst, ends in .jsonl or .json holds a JSON object a line,
// whose text is under a key. Any other file is text: a document, or several between separators. A
// byte order mark at the beginning of a file is no part of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/byte_stream.h"
#include "data/text_files.h"

namespace octet {

// The meaning of a file of JSON lines.
enum class JsonLines {
  parsed,   // a document a line
  as_text,  // text like any other
};

struct DocumentOptions {
  std::string separator = {};  // between documents of a text file, which are stripped of white
                               // space; empty: a file is a document
  std::string text_key = "text";
  uint64_t max_document_bytes = uint64_t{1} << 30;
  JsonLines json = JsonLines::parsed;
};

// A document, or why there is none.
struct Document {
  std::string text = {};
  // "", "empty", "not UTF-8", "has a NUL", "not JSON", "no text", "has half of a surrogate pair",
  // "a key given twice", "too long"
  std::string dropped = {};
};

class DocumentReader {
 public:
  // Throws Error{bad_data} for a Parquet file, which is not supported.
  DocumentReader(const Files& files, const std::string& path, const DocumentOptions& options);
  ~DocumentReader();
  std::optional<Document> next();

 private:
  std::optional<std::string> next_part();
  Document checked(std::string text) const;
  Document of_json(const std::string& line) const;

  std::string path_;
  DocumentOptions options_;
  std::string ending_;  // of a part: a line's, or the separator
  bool is_json_ = false;
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t at_ = 0;  // of what is not given out yet, in buffer_
  bool is_at_end_ = false;
  bool is_too_long_ = false;  // the part that is being read
};

// The files that paths stand for, and what is left out: a folder's as files_under() lists them.
// Throws Error{bad_data} where a path is missing.
FolderFiles expand_paths(const Files& files, const std::vector<std::string>& paths);

}  // namespace octet
