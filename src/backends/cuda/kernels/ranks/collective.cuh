// Shared parts of the kernels between ranks (ranks.cu, reduce_ranks.cu).
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/ranks/transport.h"
#include "backends/cuda/launch/context.h"
#include "ir/ops/slots.h"

namespace octet::cuda {

inline constexpr int kRankThreads = 256;

// Addresses of each rank of the host.
template <typename T>
struct Peers {
  T* at[kMaxRanks];
};
template <typename T>
Peers<T> peers_of(const RankLinks& links, const void* own) {
  Peers<T> result{};
  std::ranges::copy(links.peers<T>(own), result.at);
  return result;
}

inline unsigned grid_of(int n_sm, int64_t n_elems, int each) {
  const int64_t blocks =
      (n_elems + int64_t{kRankThreads} * each - 1) / (int64_t{kRankThreads} * each);
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, int64_t{n_sm} * 8));
}

// A kernel between ranks: data moves while all are there.
class Collective : public Prepared {
 public:
  Collective(const Request& request, int64_t ranks) : links_(request.context.links) {
    is_alone_ = ranks == 1;
    if (!is_alone_ && ranks != links_.n_ranks)
      throw ModuleError("[cuda] expected a program for " + std::to_string(links_.n_ranks) +
                        " ranks, got one for " + std::to_string(ranks));
  }
  void launch(const Launch& args) override {
    if (args.is_second_phase) return finish(args);
    begin(args);
    move(args);
    end(args);
  }

 protected:
  void begin(const Launch& args) const {
    if (args.begins_collective_group > 0 && links_.n_ranks > 1)
      transport().begin(args.begins_collective_group, args.stream);
  }
  void end(const Launch& args) const {
    if (args.ends_collective_group && links_.n_ranks > 1) transport().end(args.stream);
  }
  virtual void move(const Launch& args) = 0;
  virtual void finish(const Launch&) {}
  const RankLinks& links() const { return links_; }
  bool is_alone() const { return is_alone_; }  // every rank computes the whole by itself
  bool has_peers() const { return links_.n_local > 1; }
  bool has_hosts() const { return links_.n_hosts() > 1; }
  WithinHost& within() const { return *transport().within; }
  BetweenHosts& between() const { return *transport().between; }

  // f(local) for each other rank of the host, the next one first.
  template <typename F>
  void for_peers(const F& f) const {
    const int n = links_.n_local;
    for (int step = 1; step < n; ++step) f((links_.local() + step) % n);
  }
  // With each other host, the next one first, what part(host) says.
  template <typename Part>
  void exchange(const Launch& args, const Part& part) const {
    std::vector<Exchange> parts;
    const int n = links_.n_hosts();
    for (int step = 1; step < n; ++step) {
      const int host = (links_.host() + step) % n;
      parts.push_back(part(host));
      parts.back().host = host;
    }
    between().exchange(parts, args.stream);
  }

 private:
  Transport& transport() const { return *links_.transport; }

  const RankLinks& links_;
  bool is_alone_ = false;
};

std::unique_ptr<Prepared> make_reduce_ranks(const Request& request);

}  // namespace octet::cuda
