#include "chapters/04_pipedream/admission.h"

#include <algorithm>

namespace stagecoach {

Admission::Admission(const Schedule& schedule, int rank, std::int64_t first_batch, std::int64_t batches, Epoch& epoch)
    : schedule_(schedule),
      actions_(schedule.ranks[static_cast<std::size_t>(rank)]),
      first_batch_(first_batch),
      batches_(batches),
      epoch_(epoch) {}

bool Admission::admits(std::size_t place) {
  const Action& action = actions_[place];
  if (!is_computation(action.operation)) {
    return !batches_of(place).empty();
  }
  const std::int64_t batch = batch_of(action.microbatch);
  // Other replicas of the first stage begin what comes before this rank's next forward; they must not wait for that.
  const int next = action.microbatch + schedule_.replicas_of(0);
  const std::int64_t last = next < schedule_.microbatches ? batch_of(next) - 1 : batches_ - 1;
  return epoch_.may_begin(batch, std::max(last, batch));
}

std::vector<std::int64_t> Admission::batches_of(std::size_t place) {
  const int unit = schedule_.microbatches_per_update(actions_[place].stage);
  const int first = actions_[place].microbatch * unit;
  const std::int64_t last = batch_of(std::min(first + unit, schedule_.microbatches) - 1);
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = batch_of(first); batch <= last && epoch_.may_begin(batch, batch); ++batch) {
    batches.push_back(batch);
  }
  return batches;
}

void Admission::finish() { static_cast<void>(epoch_.may_begin(batches_ - 1, batches_ - 1)); }

}  // namespace stagecoach
