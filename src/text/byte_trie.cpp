#include "text/byte_trie.h"

#include <utility>

#include "base/error.h"

namespace octet {

ByteTrie::Edge& ByteTrie::edge(int64_t key) {
  size_t slot = slot_of(key);
  while (edges_[slot].key != key && edges_[slot].key != kFree) {
    slot = (slot + 1) & (edges_.size() - 1);
  }
  return edges_[slot];
}

void ByteTrie::grow() {
  const std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(2 * edges_.size()));
  for (const Edge& known : old) {
    if (known.key != kFree) edge(known.key) = known;
  }
}

void ByteTrie::add(std::string_view bytes, int32_t value) {
  CHECK(!bytes.empty() && value >= 0);
  Node node;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (2 * static_cast<size_t>(n_nodes_) >= edges_.size()) grow();
    const int64_t key = key_of(node, bytes[i]);
    Edge& found = edge(key);
    if (found.key == kFree) found = {key, {n_nodes_++, kNone}};
    if (i + 1 == bytes.size()) found.to.value = value;
    node = found.to;
  }
}

}  // namespace octet
