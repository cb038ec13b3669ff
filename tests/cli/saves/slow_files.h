// A slow disk, and one that stops taking what is written to some files.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "unit/base/faulty_files.h"

namespace octet::test {

class SlowFiles : public FaultyFiles {
 public:
  // Each write to a tensor file takes so long.
  explicit SlowFiles(std::chrono::microseconds pause) : FaultyFiles(posix_files()), pause_(pause) {}
  // Tensor files with both in their paths take no byte: the disk is full. Before any is written.
  void refuse(std::string part, std::string other_part = "") {
    refused_ = {std::move(part), std::move(other_part)};
  }
  // Bytes that free_bytes() tells of every folder.
  void leave_room(uint64_t n_bytes) { room_ = n_bytes; }
  std::optional<uint64_t> free_bytes(const std::string&) const override { return room_; }
  // Tensor files that were begun.
  int n_begun() const { return n_begun_; }

  std::unique_ptr<FileWriter> create(const std::string& path) override {
    if (path.find(".safetensors") == path.npos) return FaultyFiles::create(path);
    ++n_begun_;
    return std::make_unique<Writer>(*this, FaultyFiles::create(path), path);
  }
  std::unique_ptr<RangeWriter> open_ranges(const std::string& path) override {
    return std::make_unique<Ranges>(*this, FaultyFiles::open_ranges(path), path);
  }

 private:
  void before_write(const std::string& path) const {
    std::this_thread::sleep_for(pause_);
    const auto [part, other] = refused_;
    if (!part.empty() && path.find(part) != path.npos && path.find(other) != path.npos)
      throw_io_error("write to", path, ENOSPC);
  }
  struct Writer : FileWriter {
    Writer(const SlowFiles& files, std::unique_ptr<FileWriter> file, std::string name)
        : owner(files), under(std::move(file)), path(std::move(name)) {}
    void write(std::span<const std::byte> bytes) override {
      owner.before_write(path);
      under->write(bytes);
    }
    void sync() override { under->sync(); }
    void close() override { under->close(); }
    const SlowFiles& owner;
    std::unique_ptr<FileWriter> under;
    std::string path;
  };
  struct Ranges : RangeWriter {
    Ranges(const SlowFiles& files, std::unique_ptr<RangeWriter> file, std::string name)
        : owner(files), under(std::move(file)), path(std::move(name)) {}
    void write_at(uint64_t offset, std::span<const std::byte> bytes) override {
      owner.before_write(path);
      under->write_at(offset, bytes);
    }
    void sync() override { under->sync(); }
    void close() override { under->close(); }
    const SlowFiles& owner;
    std::unique_ptr<RangeWriter> under;
    std::string path;
  };

  std::chrono::microseconds pause_;
  std::optional<uint64_t> room_;
  std::pair<std::string, std::string> refused_;
  std::atomic<int> n_begun_ = 0;
};

}  // namespace octet::test
