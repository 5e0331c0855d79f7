// The entry of this folder's kernels, as they are compiled for one level of processors. cmake/Levels.cmake names it.

#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/kernels/levels.h"

namespace stagecoach::cpu {

const Tables* STAGECOACH_TABLES_OF_LEVEL() {
  static const Tables tables = make_tables({add_attention, add_attention_part, add_batch_norm, add_conv2d,
                                            add_elementwise, add_images, add_layer_norm, add_linear, add_losses,
                                            add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens});
  return &tables;
}

}  // namespace stagecoach::cpu
