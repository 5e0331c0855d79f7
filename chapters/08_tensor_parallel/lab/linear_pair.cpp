#include "chapters/08_tensor_parallel/lab/linear_pair.h"

#include "chapters/08_tensor_parallel/lab/conjugate.h"
#include "chapters/common/not_written.h"

namespace stagecoach::lab {

// From core/ops.h: linear(x, weight, bias) and linear(x, weight), relu, narrow_columns(x, first, count), and
// add_broadcast(x, bias), which adds a bias to each row. t.narrow(first, count) is a view of rows of t.

LinearPair cut_pair(const LinearPair& /*whole*/, int /*rank*/, int /*ranks*/) { throw NotWritten(); }

Tensor pair_forward(const Tensor& /*x*/, const LinearPair& /*mine*/, Communicator& /*comm*/) { throw NotWritten(); }

}  // namespace stagecoach::lab
