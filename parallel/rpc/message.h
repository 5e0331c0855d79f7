#pragma once
/// @file
/// The messages of remote calls: commands from the master to a worker, and values in all directions.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace stagecoach::rpc {

/// Names something that a worker keeps. The master chooses the numbers.
using Id = std::int64_t;

/// How many numbers are set aside for a list of a module's tensors.
inline constexpr Id kMaxListed = Id{1} << 32;

/// What a worker is told to do. `result`, `of`, `context`, `name` and so on are those of Command.
enum class Task : std::int32_t {
  make_module,  ///< makes module `result` by the factory `name`; answers
  parameters,   ///< keeps the parameters of module `of` as values from `result` on; answers with their names, each with
                ///< a newline
  buffers,      ///< the same with its buffers
  train,        ///< switches module `of` to training, or, unless `is_on`, to evaluation
  make_optimizer,  ///< makes optimizer `result` of the parameters `arguments` by the factory `name`; answers
  call,            ///< keeps what function `name` returns for `arguments` as value `result`
  forward,   ///< keeps the output of module `of` for arguments[0] as value `result`; with a context, and its graph
  backward,  ///< runs the backward of value `of` from gradient arguments[0]; keeps the input's gradient as `result`
  step,      ///< makes a step of optimizer `of` with the gradients of `context`; answers
  check,     ///< answers with the first error of `context`, if there was one
  keep,      ///< keeps `value` as value `result`
  send,      ///< sends value `of` to rank `peer`
  send_and_drop,  ///< the same, and forgets it
  receive,        ///< receives value `result` from rank `peer`
  report,         ///< answers with a Report
  drop,           ///< forgets value `of`
  end_context,    ///< forgets the gradients of `context`
  shut_down,      ///< ends the worker; must be the last
};

/// A tensor, or the error that happened in its place. An undefined tensor without error is an answer without a value.
struct Value {
  Tensor tensor = {};
  std::string error = {};  ///< names the rank where it happened
};

struct Command {
  Task task = Task::shut_down;
  Id result = 0;
  Id of = 0;
  Id context = 0;  ///< 0: none
  int peer = 0;
  bool needs_input_grad = false;  ///< of a forward
  bool is_on = false;             ///< of train
  std::string name = {};
  std::vector<Id> arguments = {};
  Value value = {};  ///< of keep
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
std::vector<Command> unpack_commands(const Unpacker& unpacker);
Value unpack_value(const Unpacker& unpacker);

/// Convert a text to a tensor uint8 [n] and back.
Tensor tensor_of(const std::string& text, Device device);
std::string text_of(const Tensor& bytes);

}  // namespace stagecoach::rpc
