#include "chapters/09_sharded_data_parallel/lab/step.h"

#include "chapters/common/not_written.h"
#include "parallel/data_parallel/sharded/before_backward.h"

namespace stagecoach::lab {

// before_backward(y, call), of parallel/data_parallel/sharded/before_backward.h, returns y with a mark. A backward that
// reaches it calls `call`, a lambda without parameters.

Tensor forward(ShardedModel& /*model*/, const Tensor& /*x*/, Communicator& /*comm*/) { throw NotWritten(); }

void reach(ShardedModel& /*model*/, int /*u*/, Communicator& /*comm*/) { throw NotWritten(); }

}  // namespace stagecoach::lab
