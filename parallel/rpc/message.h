#pragma once
/// @file
/// The messages of remote calls: commands from the master to a worker, and values in all directions.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/batch_position.h"
#include "parallel/rpc/value.h"

namespace stagecoach::rpc {

/// How many numbers are set aside for the tensors of a list.
inline constexpr Id kMaxListed = Id{1} << 32;

/// What a worker is told to do. `result`, `of`, `context`, `name` and so on are those of Command. Values and objects
/// are kept under one set of numbers. The master, which has rank 0, gets the answers.
enum class Task : std::uint8_t {
  call,  ///< calls function or factory `name`, or method `name` of object `of`; keeps the result as `result`; with a
         ///< context, and its graph
  backward,  ///< runs the backward of value `of`; arguments: its gradient from the workers and that from the master,
             ///< then for each input that needs a gradient the sum that it continues (all may be nothing). Keeps the
             ///< new sums from `result` on
  step,      ///< makes a step of optimizer `of` with the gradients of `context`; answers
  check,     ///< answers with the first error of `context`, if there was one
  confirm,   ///< answers with the error in the place of value `of`, if there is one
  keep,      ///< keeps arguments[0] as value `result`
  pack,      ///< keeps a list of tensors as value `result`; arguments: a name and a reference for each
  unpack,  ///< keeps the tensors of list `of` as values from `result` on; answers with their names, each with a newline
  send,    ///< sends value `of` to rank `peer`
  send_and_drop,  ///< the same, and forgets it
  receive,        ///< receives value `result` from rank `peer`
  report,         ///< answers with a Report
  drop,           ///< forgets the values that the arguments refer to
  end_context,    ///< forgets the gradients of `context`
  shut_down,      ///< ends the worker; must be the last
};

struct Command {
  Task task = Task::shut_down;
  bool no_grad = false;                        ///< of a call: records nothing
  std::optional<BatchPosition> position = {};  ///< of a call: that of the samples that it computes with, if it is known
  int peer = 0;
  Id result = 0;
  Id of = 0;
  Id context = 0;                ///< 0: none
  std::uint64_t needs_grad = 0;  ///< of a call: bit i is set if the backward needs the gradient of arguments[i]
  std::string name = {};
  std::vector<Value> arguments = {};
};

/// The bytes of a message that is short: commands with short names, and values of up to kInlineBytes, travel in one.
inline constexpr std::size_t kMessageBytes = 1024;
inline constexpr std::size_t kInlineBytes = 512;

/// Commands or a value as bytes. Longer tensors, and those on GPUs, follow as messages of their own, without a copy.
struct Packed {
  std::vector<std::uint8_t> bytes = {};
  std::vector<Tensor> tensors = {};
};
Packed pack(const std::vector<Command>& commands);
Packed pack(const Value& value);

/// The bytes that have arrived at a rank on `device`, and how to receive the tensors that follow them.
struct Unpacker {
  Device device;
  std::vector<std::uint8_t> bytes;
  std::function<Tensor(const Shape& shape, DType dtype)> receive;
};
/// Throw Error for bytes that are not a message, before memory is allocated for what a wrong length promises.
std::vector<Command> unpack_commands(const Unpacker& unpacker);
Value unpack_value(const Unpacker& unpacker);

}  // namespace stagecoach::rpc
