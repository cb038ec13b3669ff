// Strings as a tree of their bytes: which of them begin at a place of a text is one walk.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace octet {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t id = 0;         // 0: the root; kNone: no string goes on so
    int32_t value = kNone;  // of the string that ends here
    bool exists() const { return id != kNone; }
  };

  // `bytes` is not empty, `value` >= 0; of two equal strings the later counts.
  void add(std::string_view bytes, int32_t value);
  // The node behind one more byte of a node that exists.
  Node child(Node node, char byte) const {
    const int64_t key = key_of(node, byte);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (edges_.size() - 1)) {
      if (edges_[slot].key == key) return edges_[slot].to;
      if (edges_[slot].key == kFree) return {kNone, kNone};
    }
  }

 private:
  static constexpr int64_t kFree = -1;
  struct Edge {
    int64_t key = kFree;
    Node to;
  };

  static int64_t key_of(Node node, char byte) {
    return int64_t{node.id} << 8 | static_cast<unsigned char>(byte);
  }
  size_t slot_of(int64_t key) const {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
    return (static_cast<uint64_t>(key) * kMultiplier >> 32) & (edges_.size() - 1);
  }
  Edge& edge(int64_t key);  // that of the key, or a free one
  void grow();

  std::vector<Edge> edges_ = std::vector<Edge>(64);  // open addressing; a power of two
  int32_t n_nodes_ = 1;
};

}  // namespace octet
