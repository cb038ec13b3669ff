#include "bench/load_bench.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "base/thread_pool.h"
#include "infer/inference.h"
#include "io/gguf_reader.h"
#include "train/stopwatch.h"

namespace octet {
namespace {

struct Taken {
  double wall_ms = 0, cpu_ms = 0;
};

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

Taken taken_by(const std::function<void()>& work) {
  const Stopwatch watch;
  const double before = processor_ms();
  work();
  return {1e3 * watch.seconds(), processor_ms() - before};
}

void read_all(const BenchMachine& machine, const std::string& path, ThreadPool& threads) {
  constexpr int64_t kPiece = 1 << 19;  // elements
  struct Piece {
    const GgufTensor* tensor;
    int64_t first;
    std::span<float> out;
  };
  const GgufReader file = GgufReader::open(posix_files(), path);
  const auto n_elems_of = [](const GgufTensor& tensor) { return n_elems(tensor.shape); };
  int64_t n = 0;
  for (const GgufTensor& tensor : file.header().tensors()) n += n_elems_of(tensor);
  Device& device = *machine.backend.device;
  const int64_t n_bytes = n * static_cast<int64_t>(sizeof(float));
  const auto values = machine.is_gpu() ? device.allocate_host(n_bytes) : device.allocate(n_bytes);
  std::vector<Piece> pieces;
  auto* to = reinterpret_cast<float*>(values->data());
  for (const GgufTensor& tensor : file.header().tensors()) {
    for (int64_t first = 0; first < n_elems_of(tensor); first += kPiece) {
      const auto size = static_cast<size_t>(std::min(kPiece, n_elems_of(tensor) - first));
      pieces.push_back({&tensor, first, {to, size}});
      to += size;
    }
  }
  threads.run(std::ssize(pieces), [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    file.read(*piece.tensor, piece.first, piece.out);
  });
}

void load(const BenchMachine& machine, const LoadCase& what) {
  const ModelSource source = what.open();
  const FunctionKey functions[] = {{function::logits, {.batch = 1, .seq = 16}}};
  const Inference model(
      source, functions,
      {posix_files(), *machine.backend.device, *machine.backend.catalogue, machine.log});
}

BenchRow row_of(const BenchMachine& machine, const std::string& name, const std::string& shape,
                std::vector<double> loads, std::vector<double> reads) {
  BenchRow row = machine.row(name, shape);
  row.value = median(std::move(loads));
  row.floor = median(std::move(reads));
  row.unit = "ms";
  row.baseline = "reading and decoding";
  row.ratio = row.floor / row.value;
  return row;
}

}  // namespace

BenchRows bench_load(const BenchMachine& machine, const LoadCase& what) {
  ThreadPool threads(machine.backend.device->info().n_threads);
  std::vector<double> loads, reads, load_cpu, read_cpu;
  for (int round = 0; round <= what.rounds; ++round) {
    const Taken read = taken_by([&] { read_all(machine, what.file, threads); });
    const Taken loaded = taken_by([&] { load(machine, what); });
    if (round == 0) continue;  // files come into the system's cache
    reads.push_back(read.wall_ms);
    loads.push_back(loaded.wall_ms);
    read_cpu.push_back(read.cpu_ms);
    load_cpu.push_back(loaded.cpu_ms);
  }
  const std::string name = "load " + what.open().recipe;
  const std::string shape = fmt::format("{} bytes", posix_files().size(what.file));
  return {row_of(machine, name, shape, std::move(loads), std::move(reads)),
          row_of(machine, name + ": cpu", shape, std::move(load_cpu), std::move(read_cpu))};
}

}  // namespace octet
