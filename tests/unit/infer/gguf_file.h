// A GGUF file made of its parts, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace octet::test {

class GgufFile {
 public:
  template <typename T>
  static std::string raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }

  // In the place of a value that the key has already.
  void add_value(const std::string& key, uint32_t type, const std::string& bytes) {
    remove(key);
    values_.emplace_back(key, raw(type) + bytes);
  }
  void remove(const std::string& key) {
    std::erase_if(values_, [&](const auto& value) { return value.first == key; });
  }
  void repeat_last_key() { values_.push_back(values_.back()); }
  void add(const std::string& key, uint32_t value) { add_value(key, 4, raw(value)); }
  void add_real(const std::string& key, float value) { add_value(key, 6, raw(value)); }
  void add_flag(const std::string& key, bool value) { add_value(key, 7, raw<uint8_t>(value)); }
  void add(const std::string& key, const std::string& value) { add_value(key, 8, text(value)); }
  void add(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    add_value(key, 9, bytes);
  }
  void add(const std::string& key, const std::vector<int32_t>& values) {
    std::string bytes = raw<uint32_t>(5) + raw<uint64_t>(values.size());
    for (const int32_t value : values) bytes += raw(value);
    add_value(key, 9, bytes);
  }
  // The next tensor begins `n` bytes before the end of the last.
  void step_back(size_t n) { data_.resize(data_.size() - n); }
  // `shape` row-major.
  void add_tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type,
                  const std::string& bytes) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensors_ += text(name) + raw<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) tensors_ += raw(*extent);
    tensors_ += raw(type) + raw<uint64_t>(data_.size());
    data_ += bytes;
    ++n_tensors_;
  }

  std::string bytes() const {
    std::string file = "GGUF" + raw<uint32_t>(3) + raw(n_tensors_);
    file += raw<uint64_t>(values_.size());
    for (const auto& [key, value] : values_) file += text(key) + value;
    file += tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
  std::string tensors_, data_;
  uint64_t n_tensors_ = 0;
};

}  // namespace octet::test
