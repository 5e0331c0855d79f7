#pragma once
/// @file
/// The functions that fill a backend's table, or the table of costs: each fills the rows of one group of kernels.h, and
/// is in the source file named after the group.

#include <array>
#include <bit>
#include <initializer_list>

#include "core/kernels/costs.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

namespace cpu {
struct Tables;
using AddRows = void(Tables& tables);
AddRows add_attention, add_attention_part, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm,
    add_linear, add_losses, add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
/// Returns tables that `groups` fill. Throws Error if a row is empty.
Tables make_tables(std::initializer_list<AddRows*> groups);
}  // namespace cpu

namespace cuda {
using AddRows = void(Kernels& table);
AddRows add_attention, add_attention_part, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm,
    add_linear, add_losses, add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
}  // namespace cuda

namespace costs {
using AddRows = void(KernelCosts& table);
AddRows add_attention, add_attention_part, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm,
    add_linear, add_losses, add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens;
}  // namespace costs

/// Returns the rows of a table in their order, as functions of one type.
template <class Result>
auto rows_of(const KernelTable<Result>& table) {
  using Row = void (*)();
  return std::bit_cast<std::array<Row, sizeof(table) / sizeof(Row)>>(table);
}

/// Throws Error that names `folder` in core/kernels if a row of its table is empty.
template <class Result>
void require_rows(const char* folder, const KernelTable<Result>& table);

}  // namespace stagecoach
