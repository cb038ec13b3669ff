// A file layer that fails on purpose: the n-th operation that changes something, counted from 0.
#pragma once

#include <atomic>
#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"

namespace octet::test {

enum class FaultMode {
  fail_once,       // the operation fails with `error`; later ones work
  fail_from_then,  // it and all later ones fail: the disk is full, or the process was killed there
  lose_half,       // a write reports success and drops the second half
};

struct Fault {
  int64_t at = std::numeric_limits<int64_t>::max();
  FaultMode mode = FaultMode::fail_once;
  int error = ENOSPC;
  std::string only = {};  // count only operations of this name ("write", "sync", "rename", ...)
};

class FaultyFiles : public Files {
 public:
  explicit FaultyFiles(Files& under) : under_(under) {}
  void set(Fault fault) {
    fault_ = std::move(fault);
    count_ = 0;
  }
  int64_t count() const { return count_; }

  std::unique_ptr<FileReader> open(const std::string& path) const override {
    return under_.open(path);
  }
  std::vector<DirectoryEntry> list(const std::string& path) const override {
    return under_.list(path);
  }
  EntryKind kind(const std::string& path) const override { return under_.kind(path); }
  EntryKind entry_kind(const std::string& path) const override { return under_.entry_kind(path); }
  std::string write_target(const std::string& path) const override {
    return under_.write_target(path);
  }
  bool holds_current_folder(const std::string& path) const override {
    return under_.holds_current_folder(path);
  }

  std::unique_ptr<FileWriter> create(const std::string& path) override {
    step("create", path);
    return std::make_unique<Writer>(*this, under_.create(path), path);
  }
  std::unique_ptr<RangeWriter> open_ranges(const std::string& path) override {
    step("open", path);
    return std::make_unique<Ranges>(*this, under_.open_ranges(path), path);
  }
  std::optional<uint64_t> free_bytes(const std::string& folder) const override {
    return under_.free_bytes(folder);
  }
  void create_directory(const std::string& path) override {
    step("create directory", path);
    under_.create_directory(path);
  }
  std::unique_ptr<FileLock> lock(const std::string& path) override {
    step("lock", path);
    return under_.lock(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    step("rename", to);
    under_.rename(from, to);
  }
  void sync_directory(const std::string& path) override { step("sync directory", path); }
  void remove(const std::string& path) override {
    step("remove", path);
    under_.remove(path);
  }

 private:
  class Writer : public FileWriter {
   public:
    Writer(FaultyFiles& owner, std::unique_ptr<FileWriter> under, std::string path)
        : owner_(owner), under_(std::move(under)), path_(std::move(path)) {}
    void write(std::span<const std::byte> bytes) override {
      if (owner_.due("write")) {
        under_->write(bytes.first(bytes.size() / 2));
        if (owner_.fault_.mode == FaultMode::lose_half) return;
        throw_io_error("write to", path_, owner_.fault_.error);
      }
      under_->write(bytes);
    }
    // Effects of a failed sync are tested here; the medium is not, and it is slow.
    void sync() override { owner_.step("sync", path_); }
    void close() override {
      owner_.step("close", path_);
      under_->close();
    }
    bool is_at(const std::string& path) const override { return under_->is_at(path); }

   private:
    FaultyFiles& owner_;
    std::unique_ptr<FileWriter> under_;
    std::string path_;
  };

  class Ranges : public RangeWriter {
   public:
    Ranges(FaultyFiles& owner, std::unique_ptr<RangeWriter> under, std::string path)
        : owner_(owner), under_(std::move(under)), path_(std::move(path)) {}
    void write_at(uint64_t offset, std::span<const std::byte> bytes) override {
      if (owner_.due("write")) {
        under_->write_at(offset, bytes.first(bytes.size() / 2));
        if (owner_.fault_.mode == FaultMode::lose_half) return;
        throw_io_error("write to", path_, owner_.fault_.error);
      }
      under_->write_at(offset, bytes);
    }
    void sync() override { owner_.step("sync", path_); }
    void close() override {
      owner_.step("close", path_);
      under_->close();
    }

   private:
    FaultyFiles& owner_;
    std::unique_ptr<RangeWriter> under_;
    std::string path_;
  };

  bool due(const std::string& operation) {
    if (!fault_.only.empty() && fault_.only != operation) return false;
    const int64_t index = count_++;
    return fault_.mode == FaultMode::fail_from_then ? index >= fault_.at : index == fault_.at;
  }
  void step(const std::string& operation, const std::string& path) {
    if (due(operation) && fault_.mode != FaultMode::lose_half) {
      throw_io_error(operation, path, fault_.error);
    }
  }

  Files& under_;
  Fault fault_;
  std::atomic<int64_t> count_ = 0;  // saves come from threads of their own
};

}  // namespace octet::test
