// Files in memory: enough of the file layer for readers, and for one writer at a time.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace octet::fuzz {

class MemoryFiles : public Files {
 public:
  MemoryFiles() = default;
  MemoryFiles(const std::string& path, std::string_view bytes) { files_[path] = bytes; }

  const std::string& bytes(const std::string& path) const { return files_.at(path); }

  std::unique_ptr<FileReader> open(const std::string& path) const override {
    const auto it = files_.find(path);
    if (it == files_.end()) throw_io_error("open", path, ENOENT);
    return std::make_unique<Reader>(path, it->second);
  }
  EntryKind kind(const std::string& path) const override {
    if (files_.contains(path)) return EntryKind::file;
    const auto below = files_.lower_bound(path + "/");
    const bool is_folder = below != files_.end() && below->first.starts_with(path + "/");
    return is_folder ? EntryKind::directory : EntryKind::none;
  }
  EntryKind entry_kind(const std::string& path) const override { return kind(path); }
  // Folders are what lies below them.
  std::vector<DirectoryEntry> list(const std::string& path) const override {
    std::vector<DirectoryEntry> entries;
    for (const auto& [file, bytes] : files_) {
      if (!file.starts_with(path + "/")) continue;
      const std::string name =
          file.substr(path.size() + 1, file.find('/', path.size() + 1) - path.size() - 1);
      if (entries.empty() || entries.back().name != name)
        entries.push_back({name, kind(path + "/" + name)});
    }
    return entries;
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    return std::make_unique<Writer>(files_[path]);
  }
  std::unique_ptr<RangeWriter> open_ranges(const std::string& path) override {
    throw_io_error("write ranges of", path, ENOTSUP);
  }
  void create_directory(const std::string&) override {}
  std::unique_ptr<FileLock> lock(const std::string&) override { return nullptr; }
  void rename(const std::string& from, const std::string& to) override {
    files_[to] = std::move(files_[from]);
    files_.erase(from);
  }
  void sync_directory(const std::string&) override {}
  void remove(const std::string& path) override { files_.erase(path); }

 private:
  class Reader : public FileReader {
   public:
    Reader(std::string path, const std::string& bytes) : path_(std::move(path)), bytes_(bytes) {}
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return bytes_.size(); }
    // Reading beyond the end is the reader's mistake here: no file shrinks under it.
    void read_at(uint64_t offset, std::span<std::byte> out) const override {
      CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
      if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    }

   private:
    std::string path_;
    const std::string& bytes_;
  };

  class Writer : public FileWriter {
   public:
    explicit Writer(std::string& bytes) : bytes_(bytes) { bytes_.clear(); }
    void write(std::span<const std::byte> bytes) override {
      bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void sync() override {}
    void close() override {}

   private:
    std::string& bytes_;
  };

  std::map<std::string, std::string> files_;
};

}  // namespace octet::fuzz
