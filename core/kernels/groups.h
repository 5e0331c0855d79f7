#pragma once
/// @file
/// The functions that fill a backend's table: each fills the rows of one group of kernels.h, and is in the source file
/// named after the group.

#include <initializer_list>

#include "core/kernels/kernels.h"

namespace stagecoach {

using AddRows = void(Kernels& table);

namespace cpu {
AddRows add_attention, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm, add_linear, add_losses,
    add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
}  // namespace cpu

namespace cuda {
AddRows add_attention, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm, add_linear, add_losses,
    add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
}  // namespace cuda

/// Returns the table that `groups` fill. Throws Error that names `backend` if they leave a row empty.
Kernels make_table(const char* backend, std::initializer_list<AddRows*> groups);

}  // namespace stagecoach
