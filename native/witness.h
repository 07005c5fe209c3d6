// Whether a model is still what was looked at. Asked at each call about each module, so it stays below Python.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace hush {

// True while all of this holds:
//   dicts[i][keys[i]] is the object values[i]; where values[i] is Ellipsis, there is no such key
//   the values of children[i], a dictionary, are the objects of the list orders[i], in that order
//   type(objects[i]) is types[i]
//   bool(hooks[i]) == filled[i]
//   tensors[i].data_ptr() == addresses[i]
//   (tensors[i].numel(), tensors[i].stride()) == forms[i], unless that is None
//   tensors[i]._version == versions[i], unless that is negative
// torch's tensors are asked by way of the descriptors of their base class, without looking the names up each time.
bool unchanged(nanobind::list dicts, nanobind::list keys, nanobind::list values, nanobind::list children,
               nanobind::list orders, nanobind::list objects, nanobind::list types, nanobind::list hooks,
               nanobind::list filled, nanobind::list tensors, nanobind::list addresses, nanobind::list forms,
               nanobind::list versions, nanobind::object data_ptr, nanobind::object numel, nanobind::object stride,
               nanobind::object version);

// The version numbers that Python gives its dictionaries: while they stay, no entry has been set or deleted. A look at
// 200 of them takes a microsecond, where the entries take thirty. Later Pythons have no such number: then it never
// says that they are the same, and every entry is looked at.
class DictVersions {
public:
    explicit DictVersions(nanobind::list dicts);
    bool same() const;
    void refresh();

private:
    std::vector<PyObject*> dicts_;  // kept alive by whoever made this
    std::vector<uint64_t> versions_;
};

}  // namespace hush
