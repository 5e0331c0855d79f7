#include "parallel/pipeline/gather.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <sstream>

#include "nn/safetensors.h"

namespace stagecoach {
namespace {

constexpr int kTag = 0;

NamedTensors tensors_of_layer(const std::string& layer, const NamedTensors& tensors) {
  NamedTensors found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
               [&](const auto& named) { return named.first.rfind(layer + ".", 0) == 0; });
  return found;
}

void send_text(Communicator& comm, const std::string& text, int to) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto length = static_cast<std::int64_t>(bytes.size());
  comm.send_number(static_cast<double>(length), to, kTag);
  if (length > 0) {
    comm.send(Tensor::from(bytes, {length}, comm.device()), to, kTag);
  }
}

std::string receive_text(Communicator& comm, int from) {
  const auto length = static_cast<std::int64_t>(comm.receive_number(from, kTag));
  if (length == 0) {
    return "";
  }
  const auto bytes = comm.receive({length}, DType::uint8, from, kTag).to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

using Announced = TensorFileWriter::Announced;

/// Returns one line per tensor: its name, checksum, type, number of dimensions and extents.
std::string text_of(const std::vector<Announced>& tensors) {
  std::ostringstream list;
  for (const auto& [info, crc] : tensors) {
    list << info.name << ' ' << crc << ' ' << static_cast<int>(info.dtype) << ' ' << info.shape.dims();
    for (const std::int64_t extent : info.shape) {
      list << ' ' << extent;
    }
    list << '\n';
  }
  return list.str();
}

std::vector<Announced> announced_from(const std::string& text) {
  std::vector<Announced> tensors;
  std::istringstream list(text);
  std::uint32_t crc = 0;
  int dtype = 0;
  int dims = 0;
  for (std::string name; list >> name >> crc >> dtype >> dims;) {
    std::int64_t extents[Shape::kMaxDims] = {};
    for (int d = 0; d < dims; ++d) {
      list >> extents[d];
    }
    tensors.push_back({{name, static_cast<DType>(dtype), Shape(extents, dims)}, crc});
  }
  return tensors;
}

enum class Checksums { no, yes };

std::vector<Announced> announce(const NamedTensors& tensors, Checksums checksums) {
  std::vector<Announced> announced;
  for (const auto& [name, tensor] : tensors) {
    announced.push_back({{name, tensor.dtype(), tensor.shape()}, checksums == Checksums::yes ? crc32_of(tensor) : 0});
  }
  return announced;
}

/// For each layer in order, calls `of_mine` on the rank that owns the layer, and `of_other` with the owner on rank 0 if
/// that is another rank.
void for_each_layer(const Communicator& comm, const LayerRanks& layers, const NamedTensors& mine,
                    const std::function<void(const NamedTensors& tensors)>& of_mine,
                    const std::function<void(int owner)>& of_other) {
  for (const auto& [layer, owner] : layers) {
    if (owner == comm.rank()) {
      of_mine(tensors_of_layer(layer, mine));
    } else if (comm.rank() == 0) {
      of_other(owner);
    }
  }
}

/// Returns, on rank 0, a description of the tensors that gather_each will deliver.
std::vector<Announced> gather_announced(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine) {
  std::vector<Announced> all;
  const auto append = [&](const std::vector<Announced>& some) { all.insert(all.end(), some.begin(), some.end()); };
  for_each_layer(
      comm, layers, mine,
      [&](const NamedTensors& tensors) {
        const auto announced = announce(tensors, Checksums::yes);
        if (comm.rank() == 0) {
          append(announced);
        } else {
          send_text(comm, text_of(announced), 0);
        }
      },
      [&](int owner) { append(announced_from(receive_text(comm, owner))); });
  return all;
}

}  // namespace

void gather_each(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine,
                 const std::function<void(const std::string& name, const Tensor& tensor)>& take) {
  for_each_layer(
      comm, layers, mine,
      [&](const NamedTensors& tensors) {
        if (comm.rank() != 0) {
          send_text(comm, text_of(announce(tensors, Checksums::no)), 0);
        }
        for (const auto& [name, tensor] : tensors) {
          if (comm.rank() == 0) {
            take(name, tensor.to(Device{}));
          } else {
            comm.send(tensor.clone(), 0, kTag);  // a copy: the receiver keeps the tensor while training continues here
          }
        }
      },
      [&](int owner) {
        for (const auto& [info, crc] : announced_from(receive_text(comm, owner))) {
          take(info.name, comm.receive(info.shape, info.dtype, owner, kTag).to(Device{}));
        }
      });
}

NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine) {
  NamedTensors all;
  gather_each(comm, layers, mine,
              [&](const std::string& name, const Tensor& tensor) { all.emplace_back(name, tensor); });
  return all;
}

void save_gathered_weights(Communicator& comm, const LayerRanks& layers, const Module& model, const std::string& path) {
  std::vector<Announced> all;
  for (const NamedTensors& mine : {model.named_parameters(), model.named_buffers()}) {
    const std::vector<Announced> some = gather_announced(comm, layers, mine);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::optional<TensorFileWriter> file;
  if (comm.rank() == 0) {
    file.emplace(path, all);
  }
  for (const NamedTensors& mine : {model.named_parameters(), model.named_buffers()}) {
    gather_each(comm, layers, mine, [&](const std::string&, const Tensor& tensor) { file->add(tensor); });
  }
  if (file) {
    file->commit();
  }
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  if (comm.rank() != 0) {
    send_text(comm, mine, 0);
    return {};
  }
  std::vector<std::string> all{mine};
  for (int r = 1; r < comm.size(); ++r) {
    all.push_back(receive_text(comm, r));
  }
  return all;
}

bool is_of_rank(const LayerRanks& layers, int rank, const std::string& tensor) {
  return layers.empty() || std::any_of(layers.begin(), layers.end(), [&](const auto& of_layer) {
           const auto& [layer, owner] = of_layer;
           return owner == rank && tensor.rfind(layer + ".", 0) == 0;
         });
}

NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors) {
  if (layers.empty()) {
    return tensors;
  }
  NamedTensors found;
  for (const auto& [layer, owner] : layers) {
    if (owner == rank) {
      const NamedTensors of_layer = tensors_of_layer(layer, tensors);
      found.insert(found.end(), of_layer.begin(), of_layer.end());
    }
  }
  return found;
}

}  // namespace stagecoach
