// Evaluations that tell of each sample.
#include <algorithm>
#include <utility>

#include "train/engine.h"

namespace octet {
namespace {

// One batch, all of whose rows are looked at.
class OneBatch : public EvalRows {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  int64_t n_rows() const override { return batch_.batch; }
  int64_t rows_per_sample() const override { return batch_.rows_per_sample; }
  Batch at(int64_t, int64_t) const override { return batch_; }

 private:
  Batch batch_;
};

}  // namespace

// Ranks take turns as in evaluate(): past the last row they compute what nobody asks for.
std::vector<SampleMetric> TrainEngine::sample_metrics(const EvalRows& rows) {
  prepare_once();
  const std::vector<LossTerm>& losses = program_->options().losses;
  std::vector<SampleMetric> total;
  const int rank = group_ == nullptr ? 0 : group_->rank();
  const int64_t turn = program_->options().parallel.ranks * size_.batch;
  for (int64_t first = 0; first < rows.n_rows(); first += turn) {
    const int64_t own_first = first + rank * size_.batch;
    const OneBatch own(rows.at(own_first, size_.batch));
    const int64_t n_held = std::clamp<int64_t>(rows.n_rows() - own_first, 0, size_.batch);
    BoundPlan& plan = with_weights(function({function::evaluate, size_of(own.at(0, 0))}));
    std::vector<SampleMetric> parts = octet::sample_metrics(plan, own, size_.batch, losses);
    total.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].samples.resize(static_cast<size_t>(n_held / own.rows_per_sample()));
      total[i].name = parts[i].name;
      std::ranges::move(gather_values(group_, std::span<const NllSum>(parts[i].samples)),
                        std::back_inserter(total[i].samples));
    }
  }
  return total;
}

}  // namespace octet
