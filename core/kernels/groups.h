#pragma once
/// @file
/// How a backend fills its table: each of these functions fills the rows of one group of kernels.h, in the source file
/// of the group's name.

#include <initializer_list>

#include "core/kernels/kernels.h"

namespace stagecoach {

using AddRows = void(Kernels& table);

namespace cpu {
AddRows add_batch_norm, add_conv2d, add_elementwise, add_images, add_linear, add_losses, add_optimizer_steps, add_pool,
    add_softmax;
}  // namespace cpu

namespace cuda {
AddRows add_batch_norm, add_conv2d, add_elementwise, add_images, add_linear, add_losses, add_optimizer_steps, add_pool,
    add_softmax;
}  // namespace cuda

/// The table that `groups` fill. Throws Error when they leave a row empty; `backend` is named in it.
Kernels make_table(const char* backend, std::initializer_list<AddRows*> groups);

}  // namespace stagecoach
