# As cifar100_protocol.py: CIFAR-10, in data/cifar10.
_base_ = './cifar100_protocol.py'

data_preprocessor = dict(num_classes=10)
train_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10'))
val_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10'))
test_dataloader = val_dataloader
