#include "chapters/09_sharded_data_parallel/lab/unit.h"

#include "chapters/common/not_written.h"
#include "core/ops.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach::lab {

// Of core/storage.h you need unit.weights.storage()->drop_memory() and ->take_memory(*other.storage()); of
// parallel/data_parallel/flat.h flattened(tensors), a flat copy, and padded(flat, ranks), which adds the zeros; of
// core/ops.h add(a, b). parameter.grad() is a parameter's gradient, and parameter.zero_grad() takes it away.

void gather(Unit& /*unit*/, Communicator& /*comm*/) { throw NotWritten(); }

void free_weights(Unit& /*unit*/) { throw NotWritten(); }

void reduce(Unit& /*unit*/, Communicator& /*comm*/) { throw NotWritten(); }

}  // namespace stagecoach::lab
