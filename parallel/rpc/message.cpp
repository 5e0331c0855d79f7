#include "parallel/rpc/message.h"

#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "core/base/error.h"

namespace stagecoach::rpc {
namespace {

// What a command's byte of flags says.
constexpr std::uint8_t kNoGrad = 1;
constexpr std::uint8_t kHasPosition = 2;

class Writer {
 public:
  Packed packed;

  void bytes(const void* data, std::size_t count) {
    const auto* begin = static_cast<const std::uint8_t*>(data);
    packed.bytes.insert(packed.bytes.end(), begin, begin + count);
  }
  template <class T>
  void raw(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&value, sizeof(value));
  }
  /// Writes 7 bits per byte, the lowest first; the top bit says that more follow.
  void number(std::uint64_t value) {
    for (; value > 0x7f; value >>= 7) {
      packed.bytes.push_back(static_cast<std::uint8_t>(value) | 0x80);
    }
    packed.bytes.push_back(static_cast<std::uint8_t>(value));
  }
  void put(std::monostate) {}
  void put(bool value) { raw(value ? std::uint8_t{1} : std::uint8_t{0}); }
  void put(std::int64_t value) { raw(value); }
  void put(double value) { raw(value); }
  void put(const std::string& text) {
    number(text.size());
    bytes(text.data(), text.size());
  }
  void put(const Tensor& tensor) {
    const bool is_inline = tensor.bytes() <= kInlineBytes && tensor.device().type == DeviceType::cpu;
    put(is_inline);
    raw(tensor.dtype());
    number(static_cast<std::uint64_t>(tensor.dims()));
    for (const std::int64_t extent : tensor.shape()) {
      number(static_cast<std::uint64_t>(extent));
    }
    if (is_inline) {
      bytes(tensor.raw_data(), tensor.bytes());
    } else {
      packed.tensors.push_back(tensor);
    }
  }
  void put(const NamedTensors& list) {
    number(list.size());
    for (const auto& [name, tensor] : list) {
      put(name);
      put(tensor);
    }
  }
  void put(Reference reference) { number(static_cast<std::uint64_t>(reference.id)); }
  void put(const Failure& failure) { put(failure.text); }
  void put(const Object&) { fail("remote call: an object cannot be sent"); }
  void put(const Value& value) {
    raw(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& content) { put(content); }, value);
  }
  void put(const Command& command) {
    raw(command.task);
    raw(static_cast<std::uint8_t>((command.no_grad ? kNoGrad : 0) | (command.position ? kHasPosition : 0)));
    if (command.position) {
      number(static_cast<std::uint64_t>(command.position->step));
      number(static_cast<std::uint64_t>(command.position->first));
    }
    for (const Id each : {Id{command.peer}, command.result, command.of, command.context}) {
      number(static_cast<std::uint64_t>(each));
    }
    number(command.needs_grad);
    put(command.name);
    number(command.arguments.size());
    for (const Value& argument : command.arguments) {
      put(argument);
    }
  }
};

class Reader {
 public:
  explicit Reader(const Unpacker& unpacker) : unpacker_(unpacker), rest_(unpacker.bytes) {}

  bool is_done() const { return rest_.empty(); }
  void bytes(void* data, std::size_t count) {
    require(count);
    if (count > 0) {
      std::memcpy(data, rest_.data(), count);
    }
    rest_ = rest_.subspan(count);
  }
  template <class T>
  T raw() {
    T value{};
    bytes(&value, sizeof(value));
    return value;
  }
  /// Takes a byte that is at most `most`.
  std::uint8_t byte(std::uint8_t most) {
    const auto value = raw<std::uint8_t>();
    STAGECOACH_CHECK(value <= most, "remote call: expected a byte of a message from 0 to {}, got {}", most, value);
    return value;
  }
  bool flag() { return byte(1) != 0; }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto next = raw<std::uint8_t>();
      value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
      if (next <= 0x7f) {
        return value;
      }
    }
    fail("remote call: expected a number of at most 10 bytes in a message");
  }
  template <class Integer>
  Integer number_as() {
    const std::uint64_t value = number();
    STAGECOACH_CHECK(std::in_range<Integer>(value), "remote call: a number of a message is too large: {}", value);
    return static_cast<Integer>(value);
  }
  /// Takes the number of texts or values that follow, each of which takes at least one byte.
  std::size_t count() {
    const auto value = number_as<std::size_t>();
    require(value);
    return value;
  }
  std::string text() {
    std::string text(count(), '\0');
    bytes(text.data(), text.size());
    return text;
  }
  Tensor tensor() {
    const bool is_inline = flag();
    const auto dtype = static_cast<DType>(byte(static_cast<std::uint8_t>(DType::float16)));
    std::int64_t extents[Shape::kMaxDims] = {};
    const int dims = byte(Shape::kMaxDims);
    for (int dim = 0; dim < dims; ++dim) {
      extents[dim] = number_as<std::int64_t>();
    }
    const Shape shape(extents, dims);
    if (!is_inline) {
      return unpacker_.receive(shape, dtype);
    }
    require(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
    Tensor tensor = Tensor::empty(shape, dtype, unpacker_.device);
    bytes(tensor.raw_mutable_data(), tensor.bytes());
    return tensor;
  }
  NamedTensors list() {
    NamedTensors list;
    for (std::size_t left = count(); left > 0; --left) {
      std::string name = text();
      list.emplace_back(std::move(name), tensor());
    }
    return list;
  }
  Value value() {
    switch (byte(static_cast<std::uint8_t>(std::variant_size_v<Value> - 1))) {  // the order of Value
      case 0:
        return {};
      case 1:
        return flag();
      case 2:
        return raw<std::int64_t>();
      case 3:
        return raw<double>();
      case 4:
        return text();
      case 5:
        return tensor();
      case 6:
        return list();
      case 7:
        return Reference{number_as<Id>()};
      case 8:
        return Failure{text()};
      default:
        fail("remote call: expected a value in a message, got an object");
    }
  }
  Command command() {
    Command command;
    command.task = static_cast<Task>(byte(static_cast<std::uint8_t>(Task::shut_down)));
    const std::uint8_t flags = byte(kNoGrad | kHasPosition);
    command.no_grad = (flags & kNoGrad) != 0;
    if ((flags & kHasPosition) != 0) {
      const auto step = number_as<std::int64_t>();
      command.position = BatchPosition{step, number_as<std::int64_t>()};
    }
    command.peer = number_as<int>();
    command.result = number_as<Id>();
    command.of = number_as<Id>();
    command.context = number_as<Id>();
    command.needs_grad = number();
    command.name = text();
    for (std::size_t left = count(); left > 0; --left) {
      command.arguments.push_back(value());
    }
    return command;
  }

 private:
  void require(std::size_t count) const {
    STAGECOACH_CHECK(count <= rest_.size(), "remote call: expected {} more bytes of a message, got {}", count,
                     rest_.size());
  }

  const Unpacker& unpacker_;
  std::span<const std::uint8_t> rest_;
};

}  // namespace

Packed pack(const std::vector<Command>& commands) {
  Writer writer;
  for (const Command& command : commands) {
    writer.put(command);
  }
  return writer.packed;
}

Packed pack(const Value& value) {
  Writer writer;
  writer.put(value);
  return writer.packed;
}

std::vector<Command> unpack_commands(const Unpacker& unpacker) {
  Reader reader(unpacker);
  std::vector<Command> commands;
  while (!reader.is_done()) {
    commands.push_back(reader.command());
  }
  return commands;
}

Value unpack_value(const Unpacker& unpacker) { return Reader(unpacker).value(); }

}  // namespace stagecoach::rpc
