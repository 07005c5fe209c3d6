// Whether a model is still what was looked at. Asked at each call about each module, so it stays below Python.
#pragma once
#include <nanobind/nanobind.h>

namespace hush {

// True while all of this holds:
//   dicts[i][keys[i]] is the object values[i]; where values[i] is Ellipsis, there is no such key
//   the values of children[i], a dictionary, are the objects of the list orders[i], in that order
//   type(objects[i]) is types[i]
//   bool(hooks[i]) == filled[i]
//   tensors[i].data_ptr() == addresses[i], and tensors[i]._version == versions[i] unless that is negative
bool unchanged(nanobind::list dicts, nanobind::list keys, nanobind::list values, nanobind::list children,
               nanobind::list orders, nanobind::list objects, nanobind::list types, nanobind::list hooks,
               nanobind::list filled, nanobind::list tensors, nanobind::list addresses, nanobind::list versions);

}  // namespace hush
