#pragma once
/// @file
/// The functions that fill a backend's table: each fills the rows of one group of kernels.h, and is in the source file
/// named after the group.

#include <initializer_list>

#include "core/kernels/kernels.h"

namespace stagecoach {

namespace cpu {
struct Tables;
using AddRows = void(Tables& tables);
AddRows add_attention, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm, add_linear, add_losses,
    add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
/// Returns tables that `groups` fill. Throws Error if a row is empty.
Tables make_tables(std::initializer_list<AddRows*> groups);
}  // namespace cpu

namespace cuda {
using AddRows = void(Kernels& table);
AddRows add_attention, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm, add_linear, add_losses,
    add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
}  // namespace cuda

/// Throws Error that names `backend` if a row of its table is empty.
void require_rows(const char* backend, const Kernels& table);

}  // namespace stagecoach
