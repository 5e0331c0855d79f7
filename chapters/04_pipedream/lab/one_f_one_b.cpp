#include "chapters/04_pipedream/lab/one_f_one_b.h"

#include "chapters/common/not_written.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::lab {

// p is static_cast<int>(limits.size()). empty_schedule(p, m) makes the schedule without actions. In for_each_rank,
// rank.forward(stage, microbatch) and rank.backward(stage, microbatch) append to the list of a rank: see
// parallel/schedule/rank_actions.h.
Schedule one_f_one_b(int /*microbatches*/, const std::vector<int>& /*limits*/) { throw NotWritten(); }

}  // namespace stagecoach::lab
