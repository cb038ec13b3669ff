// The ranks of a run: D processes or threads, one device each, that move bytes to one another.
//
// Collectives: every rank calls the same ones in the same order, with the same sizes. They return
// when this rank's memory holds the result and may be written again. They only move bytes, so that
// sums are our own and their bits depend on nothing but D.
// Errors: Error{device} in every rank, naming the rank, once one has failed or calls another
// collective than the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace octet {

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // all: size() pieces of `bytes`, in the order of the ranks; `own` may be this rank's of
  // them, of all ranks or none.
  virtual void all_gather(const std::byte* own, std::byte* all, int64_t bytes) = 0;
  // send: a piece for each rank; received: a piece of each.
  virtual void all_to_all(const std::byte* send, std::byte* received, int64_t bytes) = 0;
  // The data of `root`.
  virtual void broadcast(std::byte* data, int64_t bytes, int root) = 0;
  // For any thread, again and again while this rank waits for its device, which waits for others:
  // throws once one has failed. `progress` grows with what the device has done; where no rank's
  // does for minutes, the one that is behind has failed.
  virtual void look(int64_t progress) = 0;
  // This rank has ended: the others' calls throw from now on, saying so. Whether it is the first;
  // the words of later ones are lost.
  virtual bool fail(const std::string& why) = 0;
};

// Values of every rank, in the order of the ranks; nullptr: there is one.
template <typename T>
std::vector<T> gather_values(Group* group, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (group == nullptr) return {own.begin(), own.end()};
  std::vector<T> all(own.size() * static_cast<size_t>(group->size()));
  group->all_gather(reinterpret_cast<const std::byte*>(own.data()),
                    reinterpret_cast<std::byte*>(all.data()),
                    static_cast<int64_t>(own.size_bytes()));
  return all;
}
template <typename T>
std::vector<T> gather_value(Group* group, const T& own) {
  return gather_values(group, std::span(&own, 1));
}

}  // namespace octet
